// Against the quota-agent at QUOTA_TEST_AGENT, as the project's own tests start it. Its tenant js has 20 units an hour.

import assert from 'node:assert/strict'
import test from 'node:test'
import { Client, Problem } from '../src/index.js'

const { QUOTA_TEST_AGENT: address } = process.env
const JS = { tenant: 'js' }
const refused = (status) => (e) => e instanceof Problem && e.status === status

// 20 units, to the unit, over every way to spend them.
test('decisions of a real agent', { skip: address ? false : 'QUOTA_TEST_AGENT names no agent' }, async () => {
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
