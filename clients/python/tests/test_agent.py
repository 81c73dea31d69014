"""Against the quota-agent at QUOTA_TEST_AGENT and QUOTA_TEST_AGENT_TCP, as the project's own tests start it.

Its tenant py has 20 units an hour for requests, and 1,000 tokens.
"""

import asyncio
import os
import unittest

from quota import AsyncClient, Client, Problem, Request

ADDRESS, TCP = os.environ.get("QUOTA_TEST_AGENT"), os.environ.get("QUOTA_TEST_AGENT_TCP")
PY = {"tenant": "py"}


@unittest.skipUnless(ADDRESS, "QUOTA_TEST_AGENT names no agent")
class Agent(unittest.TestCase):
    def test_one_after_another(self):
        """20 units and 1,000 tokens, to the unit, over every way to spend them."""
        with Client(ADDRESS) as quota, Client(TCP) as tcp:
            d = quota.allow(PY, units=2)
            self.assertEqual((d.allowed, d.reason, d.status, d.limit, d.quota), (True, "limit", 200, "requests", 20))
            decisions = tcp.decide([Request(PY), Request(PY, 0), Request({"tenant": "nobody"})])
            self.assertEqual([d.allowed for d in decisions], [True, True, False])
            self.assertEqual(decisions[2].reason, "no-plan")

            with quota.reserve(PY, costs={"tokens": 600}, expires=60) as r:  # 3 requests are spent, and a 4th
                self.assertTrue(r.allowed)
                self.assertFalse(tcp.allow(PY, costs={"tokens": 500}).allowed)
                r.use(1, {"tokens": 590})
                self.assertTrue(r.extend(costs={"tokens": 300}).allowed)
                self.assertFalse(r.extend(costs={"tokens": 300}).allowed)
                self.assertFalse(r.commit(1, {"tokens": 700}))
                self.assertFalse(r.commit(1, {"tokens": 700}))  # the same again is answered again
                with self.assertRaises(Problem) as raised:
                    r.commit(1, {"tokens": 701})
                self.assertEqual(raised.exception.status, 409)

            asyncio.run(self.asyncio())  # and 3 more, with 100 tokens

            left = quota.decide([Request(PY, 13, {"tokens": 200})])[0]
            self.assertTrue(left.allowed, left)
            denied = quota.allow(PY)
            self.assertEqual((denied.allowed, denied.status), (False, 429))
            self.assertGreater(denied.retry_after, 0)

            with self.assertRaises(Problem) as raised:
                quota.allow(PY, units=-1)
            self.assertEqual(raised.exception.status, 400)
            forged = quota.reserve(PY, 0)
            forged.id = "AAAA"
            with self.assertRaises(Problem) as raised:
                forged.commit(0)
            self.assertEqual(raised.exception.status, 404)

    async def asyncio(self):
        async with AsyncClient(ADDRESS) as quota:
            async with await quota.reserve(PY, costs={"tokens": 300}) as r:
                self.assertTrue(r.allowed)
                r.use(1, {"tokens": 100})
            try:
                async with await quota.reserve(PY, 5) as r:
                    raise KeyError
            except KeyError:
                pass  # cancelled: nothing is spent
            all = await asyncio.gather(*(quota.allow(PY) for _ in range(2)))
            self.assertEqual([d.allowed for d in all], [True, True])
