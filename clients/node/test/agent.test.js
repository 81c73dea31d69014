// Against the quota-agent at QUOTA_TEST_AGENT, as the project's own tests start it. Its tenants js and js-tokens
// have 20 requests an hour and 1,000 tokens.

import assert from 'node:assert/strict'
import test from 'node:test'
import { Client, Problem } from '../src/index.js'

const { QUOTA_TEST_AGENT: address } = process.env
const JS = { tenant: 'js' }
const TOKENS = { tenant: 'js-tokens' }
const skip = address ? false : 'QUOTA_TEST_AGENT names no agent'
const refused = (status) => (e) => e instanceof Problem && e.status === status

// 20 units, to the unit, over every way to spend them.
test('decisions of a real agent', { skip }, async () => {
  const quota = new Client(address, { timeout: 30 })
  try {
    const d = await quota.allow(JS, { units: 2 })
    assert.deepEqual([d.allowed, d.reason, d.status, d.limit, d.quota], [true, 'limit', 200, 'requests', 20])
    const decisions = await quota.decide([{ attributes: JS }, { attributes: JS, units: 0 }, { attributes: { tenant: 'nobody' } }])
    assert.deepEqual(decisions.map((d) => d.allowed), [true, true, false])
    assert.equal(decisions[2].reason, 'no-plan')
    const all = await Promise.all(Array.from({ length: 10 }, () => quota.allow(JS)))
    assert.ok(all.every((d) => d.allowed))
    assert.equal((await quota.decide(Array(1024).fill({ attributes: JS, units: 0 }))).length, 1024)
    assert.ok((await quota.allow(JS, { units: 7 })).allowed)
    const denied = await quota.allow(JS)
    assert.deepEqual([denied.allowed, denied.status], [false, 429])
    assert.ok(denied.retryAfter > 0)
    await assert.rejects(quota.allow(JS, { units: -1 }), refused(400))
  } finally {
    quota.close()
  }
})

// 1,000 tokens, to the unit, over every way to end a reservation.
test('reservations of a real agent', { skip }, async () => {
  const quota = new Client(address, { timeout: 30, held: 0 })
  const tokens = (n) => ({ costs: { tokens: n } })
  try {
    await quota.withReservation(TOKENS, tokens(600), async (r) => {
      assert.ok(r.allowed, r.decision.reason)
      assert.ok(!(await quota.allow(TOKENS, tokens(401))).allowed)
      r.use(tokens(590))
      assert.ok((await r.extend(tokens(300))).allowed)
      assert.ok(!(await r.extend(tokens(101))).allowed)
      assert.deepEqual(await r.commit(tokens(700)), { late: false })
      assert.deepEqual(await r.commit(tokens(700)), { late: false }) // the same again is answered again
      await assert.rejects(r.commit(tokens(701)), refused(409))
    })
    await quota.withReservation(TOKENS, tokens(300), (r) => r.use(tokens(100)))
    const fails = () => Promise.reject(new Error('mine'))
    await assert.rejects(quota.withReservation(TOKENS, tokens(200), fails), /mine/) // cancelled: nothing is spent
    assert.ok(!(await quota.allow(TOKENS, tokens(201))).allowed)
    assert.ok((await quota.allow(TOKENS, tokens(200))).allowed)
    const forged = await quota.reserve(TOKENS)
    forged.id = 'AAAA'
    await assert.rejects(forged.commit(), refused(404))
    await assert.rejects(quota.reserve(TOKENS, { expires: 3601 }), refused(400))
  } finally {
    quota.close()
  }
})
