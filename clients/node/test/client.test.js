import assert from 'node:assert/strict'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import test from 'node:test'
import { judge } from '../src/client.js'
import { Client, Problem, Unavailable } from '../src/index.js'
import { NotSent, Poster } from '../src/post.js'
import { ALLOWED, decides, DENIED, hangsUp, RESERVED, says, withAgent } from './fake.js'

const ACME = { tenant: 'acme' }
const AWAY = says(503, {}, { 'Retry-After': '0' })

/** Runs the block with an agent of these answers, and a client of it. */
const asks = (answers, options, block) =>
  withAgent(answers, async (agent) => {
    const quota = new Client(agent.address, { timeout: 30, ...options })
    try {
      return await block(quota, agent)
    } finally {
      quota.close()
    }
  })

test('a connection is kept', () =>
  asks([decides(ALLOWED)], {}, async (quota, agent) => {
    for (let i = 0; i < 5; i++) assert.ok((await quota.allow(ACME)).allowed)
    assert.deepEqual([agent.asked.length, agent.connections], [5, 1])
  }))

test('no more connections than it may', () =>
  asks([decides(ALLOWED)], { connections: 3 }, async (quota, agent) => {
    const decisions = await Promise.all(Array.from({ length: 240 }, () => quota.allow(ACME)))
    assert.ok(decisions.every((d) => d.allowed))
    assert.ok(agent.connections <= 3, agent.connections)
  }))

test('retries have the same key and body', () =>
  asks([AWAY, AWAY, decides(ALLOWED)], {}, async (quota, agent) => {
    assert.ok((await quota.allow(ACME)).allowed)
    const keys = new Set(agent.asked.map((a) => a.headers['idempotency-key']))
    assert.deepEqual([agent.asked.length, keys.size], [3, 1])
    agent.asked.forEach((a) => assert.deepEqual(a.body, agent.asked[0].body))
    assert.ok((await quota.allow(ACME)).allowed)
    assert.ok(!keys.has(agent.asked[3].headers['idempotency-key']))
  }))

test('a lost answer is asked for again', () =>
  asks([hangsUp, decides(ALLOWED)], {}, async (quota, agent) => {
    assert.ok((await quota.allow(ACME)).allowed)
    assert.equal(agent.asked.length, 2)
  }))

test('a lost extension is not', () =>
  asks([RESERVED, hangsUp], {}, async (quota, agent) => {
    const r = await quota.reserve(ACME)
    assert.equal((await r.extend({ costs: { tokens: 5 } })).reason, 'unknown')
    assert.deepEqual(agent.asked.map((a) => a.path), ['/v1/reserve', '/v1/extend'])
  }))

for (const [failureMode, allowed] of [['closed', false], ['open', true]]) {
  test(`while the agent is away, ${failureMode} decides`, async () => {
    const quota = new Client(`unix:${path.join(os.tmpdir(), 'there-is-no-such-socket')}`, { failureMode })
    const d = await quota.allow(ACME, { units: 3 })
    assert.deepEqual([d.allowed, d.reason], [allowed, 'unknown'])
    await quota.withReservation(ACME, { units: 4 }, async (r) => {
      assert.deepEqual([r.allowed, r.id], [allowed, ''])
      if (allowed) assert.ok((await r.extend({ units: 1 })).allowed)
    })
    assert.equal(quota.unaccounted, allowed ? 7 : 0)
  })
}

test('what was never sent may be sent again, whatever it is', async () => {
  const nowhere = new Poster(`unix:${path.join(os.tmpdir(), 'there-is-no-such-socket')}`, 1)
  const failure = await nowhere.post({ path: '/', body: '', key: '' }, 30_000).catch((error) => error)
  assert.ok(failure instanceof NotSent, failure)
  assert.ok(judge('extend', failure).again)
})

test('an agent that is away is tried now and then', () =>
  asks([AWAY], { retries: 0 }, async (quota, agent) => {
    const begin = Date.now()
    for (let i = 0; i < 200; i++) assert.ok(!(await quota.allow(ACME)).allowed)
    assert.ok(agent.asked.length <= 1 + (Date.now() - begin) / 500, agent.asked.length)
  }))

test('a silent agent is waited for no longer than the timeout', async () => {
  const held = []
  const silent = net.createServer((socket) => held.push(socket))
  await new Promise((resolve) => silent.listen(0, '127.0.0.1', resolve))
  const quota = new Client(`127.0.0.1:${silent.address().port}`, { timeout: 0.2 })
  const begin = Date.now()
  assert.equal((await quota.allow(ACME)).reason, 'unknown')
  assert.ok(Date.now() - begin < 5000)
  quota.close()
  held.forEach((socket) => socket.destroy())
  silent.close()
})

test('a mistake is thrown whatever the failure mode', () =>
  asks([says(400, { status: 400, title: 'Bad Request', detail: 'units: -1' })], { failureMode: 'open' }, async (quota, agent) => {
    await assert.rejects(quota.allow(ACME, { units: -1 }), (e) => e instanceof Problem && e.message === '400 Bad Request: units: -1')
    await assert.rejects(quota.decide([]), RangeError)
    await assert.rejects(quota.decide(Array(1025).fill({ attributes: ACME })), RangeError)
    assert.equal(agent.asked.length, 1)
  }))

test('a denial is not asked before', () =>
  asks([decides(DENIED)], { longestHold: 60 }, async (quota, agent) => {
    const first = await quota.allow({ tenant: 'acme', user: 'u' })
    const second = await quota.allow({ user: 'u', tenant: 'acme' })
    assert.deepEqual([first.allowed, first.retryAfter], [false, 30])
    assert.deepEqual([second.allowed, second.reason], [false, 'limit'])
    assert.ok(second.retryAfter > 0 && second.retryAfter < 30)
    assert.ok(!(await quota.reserve({ tenant: 'acme', user: 'u' })).allowed)
    assert.equal(agent.asked.length, 1)
    await quota.decide([{ attributes: { tenant: 'acme', user: 'u' } }, { attributes: ACME, units: 2 }, { attributes: ACME }])
    assert.deepEqual(agent.asked[1].body.requests.map((r) => r.units), [2, 1])
  }))

test('a denial without a time is asked again', () =>
  asks([decides({ ...DENIED, retry_after_seconds: 0 })], { longestHold: 60 }, async (quota, agent) => {
    await quota.allow(ACME)
    await quota.allow(ACME)
    assert.equal(agent.asked.length, 2)
  }))

test('how a reservation ends', async () => {
  const answers = ({ path }) =>
    (path === '/v1/reserve' ? RESERVED : says(200, { decision: ALLOWED, committed: { units: 1 }, late: false }))()
  const leaves = (block) =>
    asks([answers], {}, async (quota, agent) => {
      await quota.withReservation(ACME, { costs: { t: 5 } }, block).catch((e) => assert.equal(e.message, 'mine'))
      return agent.asked.slice(1).map(({ path, body }) => [path, body.units, body.costs])
    })
  const mine = () => {
    throw new Error('mine')
  }
  assert.deepEqual(await leaves((r) => r.commit({ costs: { t: 2 } })), [['/v1/commit', 1, { t: 2 }]])
  assert.deepEqual(await leaves((r) => r.cancel()), [['/v1/cancel', undefined, undefined]])
  assert.deepEqual(await leaves((r) => r.use({ costs: { t: 3 } })), [['/v1/commit', 1, { t: 3 }]])
  assert.deepEqual(await leaves((r) => (r.use({ costs: { t: 3 } }), mine())), [['/v1/commit', 1, { t: 3 }]])
  assert.deepEqual(await leaves(mine), [['/v1/cancel', undefined, undefined]])
  assert.deepEqual(await leaves((r) => r.extend({ costs: { t: 4 } })), [['/v1/extend', 0, { t: 4 }], ['/v1/commit', 1, { t: 9 }]])
})

test('a commit that is not answered is thrown', () =>
  asks([RESERVED, AWAY, AWAY, AWAY, says(200, { committed: { units: 1 }, late: true })], { failureMode: 'open' }, async (quota) => {
    const r = await quota.reserve(ACME)
    await assert.rejects(r.commit(), Unavailable)
    assert.deepEqual(await r.commit(), { late: true })
  }))

test('a commit that failed is repeated where the block ends', async () => {
  const committed = says(200, { committed: { units: 1 }, late: false })
  const refuses = says(409, { status: 409, title: 'Conflict', detail: 'it has ended' })
  // What the agent is told after a commit of 812 failed, the block's end being answered with last; and what is thrown.
  const leaves = (last, used, caught) =>
    asks([RESERVED, AWAY, last], { retries: 0 }, async (quota, agent) => {
      const ends = quota.withReservation(ACME, { costs: { t: 900 } }, async (r) => {
        if (used) r.use({ costs: { t: 480 } })
        const costs = { t: 812 }
        try {
          await r.commit({ costs })
        } catch (error) {
          costs.t = 0 // what the caller does with its own changes nothing
          if (!caught) throw error
        }
      })
      const thrown = await ends.then(() => null, (error) => error.constructor)
      return [thrown, ...agent.asked.slice(1).map(({ path, body }) => [path, body.units, body.costs])]
    })
  const twice = Array(2).fill(['/v1/commit', 1, { t: 812 }])
  for (const used of [false, true]) {
    assert.deepEqual(await leaves(committed, used, false), [Unavailable, ...twice])
    assert.deepEqual(await leaves(committed, used, true), [null, ...twice])
    // The block's own error is not hidden by that of its end, which is thrown where there is no other.
    assert.deepEqual(await leaves(refuses, used, false), [Unavailable, ...twice])
    assert.deepEqual(await leaves(refuses, used, true), [Problem, ...twice])
  }
})

test('a cancel that failed is repeated where the block ends', async () => {
  const refuses = says(409, { status: 409, title: 'Conflict', detail: 'it has ended' })
  // What the agent is told after a cancel failed, the block's end being answered with last; and what is thrown.
  const leaves = (last, caught) =>
    asks([RESERVED, AWAY, last], { retries: 0 }, async (quota, agent) => {
      const ends = quota.withReservation(ACME, { costs: { t: 900 } }, async (r) => {
        r.use({ costs: { t: 480 } })
        try {
          await r.cancel()
        } catch (error) {
          if (!caught) throw error
        }
      })
      const thrown = await ends.then(() => null, (error) => error.constructor)
      return [thrown, ...agent.asked.slice(1).map(({ path }) => path)]
    })
  const twice = ['/v1/cancel', '/v1/cancel']
  assert.deepEqual(await leaves(says(200, {}), false), [Unavailable, ...twice])
  assert.deepEqual(await leaves(says(200, {}), true), [null, ...twice])
  assert.deepEqual(await leaves(refuses, false), [Unavailable, ...twice])
  assert.deepEqual(await leaves(refuses, true), [Problem, ...twice])
})

test('the last word is repeated', () =>
  asks([RESERVED, AWAY, AWAY, says(200, { committed: { units: 1 }, late: false })], { retries: 0 }, async (quota, agent) => {
    await quota.withReservation(ACME, {}, async (r) => {
      await assert.rejects(r.cancel(), Unavailable)
      await assert.rejects(r.commit({ units: 3 }), Unavailable)
    })
    assert.deepEqual(agent.asked.slice(1).map(({ path }) => path), ['/v1/cancel', '/v1/commit', '/v1/commit'])
  }))

test('a denied reservation ends by itself', () =>
  asks([says(200, { decision: DENIED })], {}, async (quota, agent) => {
    await quota.withReservation(ACME, {}, async (r) => {
      assert.ok(!r.allowed)
      await assert.rejects(r.extend({ units: 1 }), RangeError)
      await assert.rejects(r.commit(), RangeError)
    })
    assert.equal(agent.asked.length, 1)
  }))

test('options and addresses out of range', () => {
  for (const wrong of [{ failureMode: 'maybe' }, { timeout: 0 }, { retries: -1 }, { connections: 0 }]) {
    assert.throws(() => new Client('127.0.0.1:7610', wrong), RangeError)
  }
  for (const wrong of ['', 'localhost', 'localhost:', ':80', 'h:0', 'h:99999', 'unix:', 'h:٣']) {
    assert.throws(() => new Client(wrong), RangeError, wrong)
  }
  for (const right of ['localhost:80', 'http://localhost:80/', '[::1]:80', 'unix:/run/x', 'unix:///run/x']) {
    new Client(right).close()
  }
})
