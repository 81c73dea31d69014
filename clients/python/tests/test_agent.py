"""Against the quota-agent at QUOTA_TEST_AGENT, as the project's own tests start it.

Its tenant py has 20 units an hour.
"""

import asyncio
import os
import unittest

from quota import AsyncClient, Client, Problem, Request

ADDRESS = os.environ.get("QUOTA_TEST_AGENT")
PY = {"tenant": "py"}


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
