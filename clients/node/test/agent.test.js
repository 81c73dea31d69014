// Against the quota-agent at QUOTA_TEST_AGENT and QUOTA_TEST_AGENT_TCP, as the project's own tests start it. Its tenant
// js has 20 units an hour for requests, and 1,000 tokens.

import assert from 'node:assert/strict'
import test from 'node:test'
import { Client, Problem } from '../src/index.js'

const { QUOTA_TEST_AGENT: address, QUOTA_TEST_AGENT_TCP: tcpAddress } = process.env
const JS = { tenant: 'js' }
const refused = (status) => (e) => e instanceof Problem && e.status === status

// 20 units and 1,000 tokens, to the unit, over every way to spend them.
test('a real agent', { skip: address ? false : 'QUOTA_TEST_AGENT names no agent' }, async () => {
  const quota = new Client(address)
  const tcp = new Client(tcpAddress)
  try {
    const d = await quota.allow(JS, { units: 2 })
    assert.deepEqual([d.allowed, d.reason, d.status, d.limit, d.quota], [true, 'limit', 200, 'requests', 20])
    const decisions = await tcp.decide([{ attributes: JS }, { attributes: JS, units: 0 }, { attributes: { tenant: 'nobody' } }])
    assert.deepEqual(decisions.map((d) => d.allowed), [true, true, false])
    assert.equal(decisions[2].reason, 'no-plan')

    // 3 requests are spent, and a 4th.
    await quota.withReservation(JS, { costs: { tokens: 600 }, expires: 60 }, async (r) => {
      assert.ok(r.allowed)
      assert.ok(!(await tcp.allow(JS, { costs: { tokens: 500 } })).allowed)
      r.use({ costs: { tokens: 590 } })
      assert.ok((await r.extend({ costs: { tokens: 300 } })).allowed)
      assert.ok(!(await r.extend({ costs: { tokens: 300 } })).allowed)
      assert.deepEqual(await r.commit({ costs: { tokens: 700 } }), { late: false })
      assert.deepEqual(await r.commit({ costs: { tokens: 700 } }), { late: false }) // the same again is answered again
      await assert.rejects(r.commit({ costs: { tokens: 701 } }), refused(409))
    })
    // And 3 more, with 100 tokens.
    await quota.withReservation(JS, { costs: { tokens: 300 } }, (r) => r.use({ costs: { tokens: 100 } }))
    await assert.rejects(quota.withReservation(JS, { units: 5 }, () => Promise.reject(new Error('mine'))), /mine/) // cancelled
    assert.ok((await Promise.all([quota.allow(JS), quota.allow(JS)])).every((d) => d.allowed))

    assert.ok((await quota.allow(JS, { units: 13, costs: { tokens: 200 } })).allowed)
    const denied = await quota.allow(JS)
    assert.deepEqual([denied.allowed, denied.status], [false, 429])
    assert.ok(denied.retryAfter > 0)

    await assert.rejects(quota.allow(JS, { units: -1 }), refused(400))
    const forged = await quota.reserve(JS, { units: 0 })
    forged.id = 'AAAA'
    await assert.rejects(forged.commit({ units: 0 }), refused(404))
  } finally {
    quota.close()
    tcp.close()
  }
})
