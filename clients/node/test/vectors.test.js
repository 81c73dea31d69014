import assert from 'node:assert/strict'
import { Backoff, mayRepeat } from '../src/backoff.js'
import { Client, judge, Reservation } from '../src/client.js'
import { rateLimit, statedWait } from '../src/fields.js'
import { Held } from '../src/held.js'
import { cleanPath, headers, problem } from '../src/middleware.js'
import { Problem, readDecision, Unavailable } from '../src/model.js'
import { each } from './vectors.js'

each('ratelimit', (c) => assert.deepEqual(rateLimit(c.lines), c.items))

each('wait', (c) => {
  const lines = new Map(Object.entries(c.headers).map(([name, v]) => [name.toLowerCase(), v]))
  assert.equal(statedWait((name) => lines.get(name.toLowerCase()) ?? [], Date.parse(c.now) / 1000), c.wait)
})

each('retry', (c) => {
  const backoff = new Backoff(c)
  const again = mayRepeat(c)
  const wait = (place) => backoff.wait({ ...c, again, place })
  if (c.want === null) return assert.equal(wait(0), null)
  assert.ok(Math.abs(wait(0) - c.want.least) < 1e-9)
  assert.ok(Math.abs(wait(1) - c.want.most) < 1e-9)
  for (let i = 0; i < 100; i++) {
    const got = wait(Math.random())
    assert.ok(got >= c.want.least && got <= c.want.most, got)
  }
})

each('held', (c) => {
  const held = new Held(c.most, c.longest)
  for (const step of c.steps) {
    if (step.deny) held.deny(step.deny, step.wait, 'denied', step.at)
    else assert.deepEqual(held.ask(step.ask, step.at), step.held ? { left: step.held, denial: 'denied' } : null)
  }
})

/** A client whose one request gets this reply; asked has what it sent. */
function clientOf(reply, options) {
  const asked = []
  const poster = { post: async (post) => (asked.push(post), reply), close() {} }
  return { asked, client: new Client('', { poster, ...options }) }
}

const reserved = (text) => ({ status: 200, header: () => [], body: text })
const RESERVED = reserved('{"decision":{"allowed":true,"reason":"limit","status":200,"retry_after_seconds":0},"reservation":{"id":"AQZh"}}')

/** Makes the call of a case against a reply. */
async function call(c, reply, options) {
  const given = c.given ?? {}
  if (c.call === 'decide') {
    const { asked, client } = clientOf(reply, options)
    return { asked, result: await client.decide(given.requests ?? [{ attributes: { tenant: 'acme' } }]) }
  }
  if (c.call === 'reserve') {
    const { asked, client } = clientOf(reply, options)
    return { asked, result: await client.reserve(given.attributes ?? { tenant: 'acme' }, given) }
  }
  const replies = [RESERVED, reply]
  const asked = []
  const poster = { post: async (post) => (asked.push(post), replies.shift()), close() {} }
  const reservation = await new Client('', { poster, ...options }).reserve({ tenant: 'acme' })
  asked.shift()
  if (given.used) reservation.use(given.used)
  return { asked, result: await reservation[c.call](given) }
}

each('bodies', async (c) => {
  const reply = { status: 200, header: () => ['application/json'], body: JSON.stringify(c.answer) }
  const { asked, result } = await call(c, reply)
  const sent = JSON.parse(asked[0].body)
  delete sent.timeout_ms
  assert.equal(asked[0].path, c.path)
  assert.equal(asked[0].key !== '', c.keyed)
  assert.deepEqual(sent, JSON.parse(JSON.stringify(c.request).replaceAll('{id}', 'AQZh')))
  if (c.call === 'decide') {
    assert.deepEqual(result.map(({ retryAfter, ...d }) => ({ ...d, retry_after: retryAfter })), c.want)
  } else if (c.call === 'reserve') {
    assert.ok(result instanceof Reservation)
    const has = Object.keys(c.want.reserved).map((name) => [name, result.reserved(name)])
    assert.deepEqual({ allowed: result.allowed, id: result.id, reserved: Object.fromEntries(has) }, c.want)
  } else if (c.call === 'extend') {
    assert.equal(result.allowed, c.want.allowed)
  } else if (c.call === 'commit') {
    assert.deepEqual(result, c.want)
  }
})

each('errors', async (c) => {
  const reply = { status: c.status, header: (name) => (name === 'Content-Type' ? [c.type] : []), body: c.body }
  assert.equal(judge(c.call, reply).again, c.again)
  const made = call(c, reply, { retries: 0 })
  if (c.want === 'problem') {
    await assert.rejects(made, (e) => e instanceof Problem && e.status === c.status && e.detail === c.detail)
  } else if (c.call === 'commit' || c.call === 'cancel') {
    await assert.rejects(made, Unavailable)
  } else {
    const { result } = await made
    const decision = Array.isArray(result) ? result[0] : result.decision ?? result
    assert.deepEqual([decision.allowed, decision.reason], [false, 'unknown'])
  }
})

each('answers', (c) => {
  const decision = readDecision(c.decision)
  assert.deepEqual(Object.fromEntries(headers(decision)), c.headers)
  if (c.problem === null) return assert.ok(decision.allowed)
  const { title, ...rest } = JSON.parse(problem(decision))
  assert.ok(title)
  assert.deepEqual(rest, c.problem)
})

each('paths', (c) => assert.equal(cleanPath(c.path), c.clean))
