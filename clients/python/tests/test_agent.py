"""Against the quota-agent at QUOTA_TEST_AGENT, as the project's own tests start it.

Its tenants py and py-tokens have 20 requests an hour and 1,000 tokens.
"""

import asyncio
import os
import unittest

from quota import AsyncClient, Client, Problem, Request

ADDRESS = os.environ.get("QUOTA_TEST_AGENT")
PY, TOKENS = {"tenant": "py"}, {"tenant": "py-tokens"}


@unittest.skipUnless(ADDRESS, "QUOTA_TEST_AGENT names no agent")
class Agent(unittest.TestCase):
    def test_decisions(self):
        """20 units, to the unit, over every way to spend them."""
        with Client(ADDRESS, timeout=30) as quota:
            d = quota.allow(PY, units=2)
            self.assertEqual((d.allowed, d.reason, d.status, d.limit, d.quota), (True, "limit", 200, "requests", 20))
            decisions = quota.decide([Request(PY), Request(PY, 0), Request({"tenant": "nobody"})])
            self.assertEqual([d.allowed for d in decisions], [True, True, False])
            self.assertEqual(decisions[2].reason, "no-plan")
            asyncio.run(self.asyncio())
            self.assertTrue(quota.allow(PY, units=7).allowed)
            denied = quota.allow(PY)
            self.assertEqual((denied.allowed, denied.status), (False, 429))
            self.assertGreater(denied.retry_after, 0)
            with self.assertRaises(Problem) as raised:
                quota.allow(PY, units=-1)
            self.assertEqual(raised.exception.status, 400)

    async def asyncio(self):
        async with AsyncClient(ADDRESS, timeout=30) as quota:
            all = await asyncio.gather(*(quota.allow(PY) for _ in range(10)))
            self.assertEqual([d.allowed for d in all], [True] * 10)
            many = await quota.decide([Request(PY, 0)] * 1024)  # whose answer comes in chunks
            self.assertTrue(all[0].limit and len(many) == 1024)

    def test_reservations(self):
        """1,000 tokens, to the unit, over every way to end a reservation."""
        with Client(ADDRESS, timeout=30, held=0) as quota:
            with quota.reserve(TOKENS, costs={"tokens": 600}) as r:
                self.assertTrue(r.allowed, r.decision)
                self.assertFalse(quota.allow(TOKENS, costs={"tokens": 401}).allowed)
                r.use(1, {"tokens": 590})
                self.assertTrue(r.extend(costs={"tokens": 300}).allowed)
                self.assertFalse(r.extend(costs={"tokens": 101}).allowed)
                self.assertFalse(r.commit(1, {"tokens": 700}))
                self.assertFalse(r.commit(1, {"tokens": 700}))  # the same again is answered again
                with self.assertRaises(Problem) as raised:
                    r.commit(1, {"tokens": 701})
                self.assertEqual(raised.exception.status, 409)
            asyncio.run(self.reservations())  # 100 tokens
            self.assertFalse(quota.allow(TOKENS, costs={"tokens": 201}).allowed)
            self.assertTrue(quota.allow(TOKENS, costs={"tokens": 200}).allowed)
            forged = quota.reserve(TOKENS)
            forged.id = "AAAA"
            with self.assertRaises(Problem) as raised:
                forged.commit(1)
            self.assertEqual(raised.exception.status, 404)
            with self.assertRaises(Problem) as raised:
                quota.reserve(TOKENS, expires=3601)
            self.assertEqual(raised.exception.status, 400)

    async def reservations(self):
        async with AsyncClient(ADDRESS, timeout=30) as quota:
            async with await quota.reserve(TOKENS, costs={"tokens": 300}) as r:
                self.assertTrue(r.allowed, r.decision)
                r.use(1, {"tokens": 100})
            with self.assertRaises(KeyError):
                async with await quota.reserve(TOKENS, costs={"tokens": 200}):
                    raise KeyError  # cancelled: nothing is spent
