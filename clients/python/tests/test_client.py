import asyncio
import contextlib
import socket
import tempfile
import threading
import time
import unittest

from quota import AsyncClient, Client, Problem, Request, Unavailable
from quota.calls import NotSent, Post, judge

from .fake import ALLOWED, DENIED, RESERVED, FakeAgent, decides, hangs_up, says

ACME = {"tenant": "acme"}
AWAY = says(503, {}, Retry_After="0")


class Blocking:
    """An AsyncClient, or its reservation, as one that blocks, so that one test holds for both kinds."""

    def __init__(self, loop, wrapped):
        self._loop, self._wrapped = loop, wrapped

    def __getattr__(self, name):
        attribute = getattr(self._wrapped, name)
        if not asyncio.iscoroutinefunction(attribute):
            return attribute

        def call(*args, **kwargs):
            got = self._loop.run_until_complete(attribute(*args, **kwargs))
            return Blocking(self._loop, got) if hasattr(got, "extend") and hasattr(got, "commit") else got

        return call

    def __enter__(self):
        self._loop.run_until_complete(self._wrapped.__aenter__())
        return self

    def __exit__(self, *raised):
        return self._loop.run_until_complete(self._wrapped.__aexit__(*raised))


class Both:
    """What holds for both clients."""

    def test_a_connection_is_kept(self):
        with FakeAgent(decides(ALLOWED)) as agent, self.client(agent.address) as quota:
            for _ in range(5):
                self.assertTrue(quota.allow(ACME).allowed)
            self.assertEqual((len(agent.asked), agent.connections), (5, 1))

    def test_a_connection_that_the_agent_closed_is_not_used(self):
        closing = lambda *a: (200, {"Connection": "close"}, decides(ALLOWED)(*a)[2])
        with FakeAgent(closing) as agent, self.client(agent.address, retries=0) as quota:
            for _ in range(3):
                self.assertTrue(quota.allow(ACME).allowed)
            self.assertEqual(agent.connections, 3)

    def test_an_answer_in_chunks(self):
        def answer(*asked):
            text = decides(ALLOWED)(*asked)[2]
            chunks = "".join(f"{len(p):x};x=y\r\n{p}\r\n" for p in (text[:10], text[10:]))
            return 200, {"Transfer-Encoding": "chunked"}, chunks + "0\r\nTrailer: x\r\n\r\n"

        with FakeAgent(answer) as agent, self.client(agent.address) as quota:
            self.assertTrue(quota.allow(ACME).allowed)
            self.assertTrue(quota.allow(ACME).allowed)
            self.assertEqual(agent.connections, 1)

    def test_retries_have_the_same_key_and_body(self):
        with FakeAgent(AWAY, AWAY, decides(ALLOWED)) as agent, self.client(agent.address) as quota:
            self.assertTrue(quota.allow(ACME).allowed)
            keys = {headers["Idempotency-Key"] for _, _, headers in agent.asked}
            self.assertEqual((len(agent.asked), len(keys)), (3, 1))
            self.assertTrue(all(body == agent.asked[0][1] for _, body, _ in agent.asked))
            self.assertTrue(quota.allow(ACME).allowed)
            self.assertNotIn(agent.asked[3][2]["Idempotency-Key"], keys)

    def test_a_lost_answer_is_asked_for_again(self):
        with FakeAgent(hangs_up, decides(ALLOWED)) as agent, self.client(agent.address) as quota:
            self.assertTrue(quota.allow(ACME).allowed)
            self.assertEqual(len(agent.asked), 2)

    def test_a_lost_extension_is_not(self):
        with FakeAgent(RESERVED, hangs_up) as agent, self.client(agent.address) as quota:
            r = quota.reserve(ACME)
            self.assertEqual(r.extend(costs={"tokens": 5}).reason, "unknown")
            self.assertEqual([path for path, _, _ in agent.asked], ["/v1/reserve", "/v1/extend"])

    def test_the_failure_mode_decides_while_the_agent_is_away(self):
        for mode, allowed in ("closed", False), ("open", True):
            with self.client(f"127.0.0.1:{free_port()}", failure_mode=mode) as quota:
                d = quota.allow(ACME, units=3)
                self.assertEqual((d.allowed, d.reason), (allowed, "unknown"))
                with quota.reserve(ACME, units=4) as r:
                    self.assertEqual((r.allowed, r.id), (allowed, ""))
                    if allowed:
                        self.assertTrue(r.extend(1).allowed)
                self.assertEqual(quota.unaccounted, 7 if allowed else 0)

    def test_an_agent_that_is_away_is_tried_now_and_then(self):
        with FakeAgent(AWAY) as agent, self.client(agent.address, retries=0) as quota:
            begin = time.monotonic()
            for _ in range(200):
                self.assertFalse(quota.allow(ACME).allowed)
            self.assertLessEqual(len(agent.asked), 1 + (time.monotonic() - begin) / 0.5)

    def test_a_silent_agent_is_waited_for_no_longer_than_the_timeout(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            with self.client("127.0.0.1:%d" % silent.getsockname()[1], timeout=0.2) as quota:
                begin = time.monotonic()
                self.assertEqual(quota.allow(ACME).reason, "unknown")
                self.assertLess(time.monotonic() - begin, 5)

    def test_a_mistake_is_raised_whatever_the_failure_mode(self):
        refuses = says(400, {"status": 400, "title": "Bad Request", "detail": "units: -1"})
        with FakeAgent(refuses) as agent, self.client(agent.address, failure_mode="open") as quota:
            with self.assertRaisesRegex(Problem, "400 Bad Request: units: -1"):
                quota.allow(ACME, units=-1)
            for wrong in [], [Request(ACME)] * 1025:
                with self.assertRaises(ValueError):
                    quota.decide(wrong)
            self.assertEqual(len(agent.asked), 1)

    def test_a_denial_is_not_asked_before(self):
        with FakeAgent(decides(DENIED)) as agent, self.client(agent.address, longest_hold=60) as quota:
            first, second = quota.allow(ACME), quota.allow(ACME)
            self.assertEqual((first.allowed, first.retry_after), (False, 30))
            self.assertEqual((second.allowed, second.reason), (False, "limit"))
            self.assertTrue(0 < second.retry_after < 30)
            self.assertFalse(quota.reserve(ACME).allowed)
            self.assertEqual(len(agent.asked), 1)
            quota.decide([Request(ACME), Request(ACME, 2), Request({"tenant": "other"})])
            self.assertEqual([r.get("units") for r in agent.asked[1][1]["requests"]], [2, 1])

    def test_a_denial_without_a_time_is_asked_again(self):
        suspended = {"allowed": False, "reason": "suspended", "status": 403, "retry_after_seconds": 0}
        with FakeAgent(decides(suspended)) as agent, self.client(agent.address, longest_hold=60) as quota:
            quota.allow(ACME)
            quota.allow(ACME)
            self.assertEqual(len(agent.asked), 2)

    def test_how_a_reservation_ends(self):
        def answers(path, body, headers):
            if path == "/v1/reserve":
                return RESERVED()
            if path == "/v1/extend":
                return says(200, {"decision": ALLOWED})()
            return says(200, {"committed": {"units": 1}, "late": False})()

        def leaves(block, raises=None):
            with FakeAgent(answers) as agent, self.client(agent.address) as quota:
                try:
                    with quota.reserve(ACME, costs={"t": 5}) as r:
                        block(r)
                        if raises:
                            raise raises
                except KeyError:
                    self.assertIsNotNone(raises)
                return [(path, body.get("units"), body.get("costs")) for path, body, _ in agent.asked[1:]]

        self.assertEqual(leaves(lambda r: r.commit(1, {"t": 2})), [("/v1/commit", 1, {"t": 2})])
        self.assertEqual(leaves(lambda r: r.cancel()), [("/v1/cancel", None, None)])
        self.assertEqual(leaves(lambda r: r.use(1, {"t": 3})), [("/v1/commit", 1, {"t": 3})])
        self.assertEqual(leaves(lambda r: r.use(1, {"t": 3}), KeyError()), [("/v1/commit", 1, {"t": 3})])
        self.assertEqual(leaves(lambda r: None, KeyError()), [("/v1/cancel", None, None)])
        self.assertEqual(
            leaves(lambda r: r.extend(0, {"t": 4})), [("/v1/extend", 0, {"t": 4}), ("/v1/commit", 1, {"t": 9})]
        )

    def test_a_commit_that_is_not_answered_is_raised(self):
        late = says(200, {"committed": {"units": 1}, "late": True})
        with FakeAgent(RESERVED, AWAY, AWAY, AWAY, late) as agent:
            with self.client(agent.address, failure_mode="open") as quota:
                r = quota.reserve(ACME)
                with self.assertRaises(Unavailable):
                    r.commit(1)
                self.assertTrue(r.commit(1))

    def test_a_commit_that_failed_is_repeated_where_the_block_ends(self):
        committed = says(200, {"committed": {"units": 1}, "late": False})
        refuses = says(409, {"status": 409, "title": "Conflict", "detail": "it has ended"})

        def leaves(last, used, caught, raises=None):
            """What the agent is told after a commit of 812 failed, the block's end being answered with last."""
            with FakeAgent(RESERVED, AWAY, last) as agent, self.client(agent.address, retries=0) as quota:
                with self.assertRaises(raises) if raises else contextlib.nullcontext():
                    with quota.reserve(ACME, costs={"t": 900}) as r:
                        if used:
                            r.use(1, {"t": 480})
                        costs = {"t": 812}
                        try:
                            r.commit(1, costs)
                        except Unavailable:
                            costs["t"] = 0  # what the caller does with its own changes nothing
                            if not caught:
                                raise
                return [(path, body.get("units"), body.get("costs")) for path, body, _ in agent.asked[1:]]

        twice = [("/v1/commit", 1, {"t": 812})] * 2
        for used in False, True:
            with self.subTest(used=used):
                self.assertEqual(leaves(committed, used, caught=False, raises=Unavailable), twice)
                self.assertEqual(leaves(committed, used, caught=True), twice)
                # The block's own error is not hidden by that of its end, which is raised where there is no other.
                self.assertEqual(leaves(refuses, used, caught=False, raises=Unavailable), twice)
                self.assertEqual(leaves(refuses, used, caught=True, raises=Problem), twice)

    def test_a_cancel_that_failed_is_repeated_where_the_block_ends(self):
        refuses = says(409, {"status": 409, "title": "Conflict", "detail": "it has ended"})

        def leaves(last, caught, raises=None):
            """What the agent is told after a cancel failed, the block's end being answered with last."""
            with FakeAgent(RESERVED, AWAY, last) as agent, self.client(agent.address, retries=0) as quota:
                with self.assertRaises(raises) if raises else contextlib.nullcontext():
                    with quota.reserve(ACME, costs={"t": 900}) as r:
                        r.use(1, {"t": 480})
                        try:
                            r.cancel()
                        except Unavailable:
                            if not caught:
                                raise
                return [path for path, _, _ in agent.asked[1:]]

        twice = ["/v1/cancel"] * 2
        self.assertEqual(leaves(says(200, {}), caught=False, raises=Unavailable), twice)
        self.assertEqual(leaves(says(200, {}), caught=True), twice)
        self.assertEqual(leaves(refuses, caught=False, raises=Unavailable), twice)
        self.assertEqual(leaves(refuses, caught=True, raises=Problem), twice)

    def test_the_last_word_is_repeated(self):
        committed = says(200, {"committed": {"units": 1}, "late": False})
        with FakeAgent(RESERVED, AWAY, AWAY, committed) as agent, self.client(agent.address, retries=0) as quota:
            with quota.reserve(ACME) as r:
                with self.assertRaises(Unavailable):
                    r.cancel()
                with self.assertRaises(Unavailable):
                    r.commit(3)
            self.assertEqual([path for path, _, _ in agent.asked[1:]], ["/v1/cancel", "/v1/commit", "/v1/commit"])

    def test_a_denied_reservation_ends_by_itself(self):
        with FakeAgent(says(200, {"decision": DENIED})) as agent, self.client(agent.address) as quota:
            with quota.reserve(ACME) as r:
                self.assertFalse(r.allowed)
                with self.assertRaises(ValueError):
                    r.extend(1)
                with self.assertRaises(ValueError):
                    r.commit(1)
            self.assertEqual(len(agent.asked), 1)


class Threads(Both, unittest.TestCase):
    def client(self, address, **options):
        return Client(address, **{"timeout": 30, **options})

    def test_no_more_connections_than_it_may(self):
        with FakeAgent(decides(ALLOWED)) as agent, Client(agent.address, connections=3, timeout=30) as quota:
            ask = lambda: [self.assertTrue(quota.allow(ACME).allowed) for _ in range(20)]
            threads = [threading.Thread(target=ask) for _ in range(12)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(len(agent.asked), 240)
            self.assertLessEqual(agent.connections, 3)


class Asyncio(Both, unittest.TestCase):
    def setUp(self):
        self.loop = asyncio.new_event_loop()
        self.addCleanup(self.loop.close)

    def client(self, address, **options):
        return Blocking(self.loop, AsyncClient(address, **{"timeout": 30, **options}))

    def test_no_more_connections_than_it_may(self):
        async def ask(address):
            async with AsyncClient(address, connections=3, timeout=30) as quota:
                return await asyncio.gather(*(quota.allow(ACME) for _ in range(240)))

        with FakeAgent(decides(ALLOWED)) as agent:
            decisions = self.loop.run_until_complete(ask(agent.address))
            self.assertTrue(all(d.allowed for d in decisions))
            self.assertLessEqual(agent.connections, 3)


class NeverSent(unittest.TestCase):
    """What was never sent may be sent again, whatever it is."""

    POST = Post("/v1/extend", b"{}", "", time.monotonic() + 3600)

    def test_threads(self):
        for address in nowhere():
            with Client(address) as quota, self.assertRaises(NotSent) as raised:
                quota._pool.post(self.POST)
            self.assertTrue(judge("extend", raised.exception)[1])

    def test_asyncio(self):
        for address in nowhere():
            with self.assertRaises(NotSent):
                asyncio.run(AsyncClient(address)._pool.post(self.POST))


def nowhere():
    """Addresses where nobody listens."""
    with tempfile.TemporaryDirectory() as dir:
        return [f"unix:{dir}/none", f"127.0.0.1:{free_port()}"]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]
