import json
import random
import unittest
from datetime import datetime

from quota import AsyncClient, Client, Problem, Request, Unavailable
from quota.backoff import Backoff, may_repeat
from quota.calls import Calls, Options, Reply, Ticket, judge
from quota.fields import rate_limit, stated_wait
from quota.held import Held
from quota.middleware import clean_path, headers, problem
from quota.model import Decision

from .vectors import cases

ID = "AQZh"


def replies(status, body, kind):
    return Reply(status, lambda name: [kind] if name == "Content-Type" else [], body.encode())


def finish(steps, reply):
    """Runs a call whose only request gets the reply. Returns the request and the result."""
    post = steps.send(None)
    try:
        steps.send(reply)
    except StopIteration as end:
        return post, end.value
    raise AssertionError("asks again")


def each(name):
    """Makes a test of one case a test of all that the vectors have."""

    def decorate(test):
        def run(self):
            for case in cases(name):
                with self.subTest(case.get("name", case)):
                    test(self, case)

        return run

    return decorate


class Vectors(unittest.TestCase):
    @each("ratelimit")
    def test_ratelimit(self, case):
        got = rate_limit(case["lines"])
        self.assertEqual(got if got is None else [m._asdict() for m in got], case["items"])

    @each("wait")
    def test_wait(self, case):
        lines = {name.lower(): v for name, v in case["headers"].items()}
        now = datetime.fromisoformat(case["now"].replace("Z", "+00:00")).timestamp()
        self.assertEqual(stated_wait(lambda name: lines.get(name.lower(), []), now), case["wait"])

    @each("retry")
    def test_retry(self, case):
        backoff = Backoff(case["retries"], case["base"], case["longest"])
        again = may_repeat(
            repeatable=case["repeatable"], status=case.get("status", 0), failure=case.get("failure", "")
        )

        def wait(place):
            return backoff.wait(
                attempt=case["attempt"],
                again=again,
                stated=case["stated"],
                left=case["left"],
                place=place,
            )

        if case["want"] is None:
            self.assertIsNone(wait(0.0))
            return
        least, most = case["want"]["least"], case["want"]["most"]
        self.assertAlmostEqual(wait(0.0), least)
        self.assertAlmostEqual(wait(1.0), most)
        for _ in range(100):
            self.assertTrue(least <= wait(random.random()) <= most)

    @each("held")
    def test_held(self, case):
        held = Held(case["most"], case["longest"])
        for step in case["steps"]:
            if "deny" in step:
                held.deny(step["deny"], step["wait"], "denied", step["at"])
                continue
            got = held.ask(step["ask"], step["at"])
            self.assertEqual(got, (step["held"], "denied") if step["held"] else None, step)

    @each("bodies")
    def test_bodies(self, case):
        calls, given = Calls(Options()), case["given"]
        ticket = Ticket(
            Request({"tenant": "acme"}), Decision(allowed=True, reason="limit", status=200), ID
        )
        units, costs = given.get("units", 0), given.get("costs", {})
        if case["call"] == "decide":
            steps = calls.decide([Request(**r) for r in given["requests"]])
        elif case["call"] == "reserve":
            expires = given.pop("expires", 60)
            steps = calls.reserve(Request(**given), expires)
        elif case["call"] == "extend":
            if "used" in given:
                ticket.use(**given["used"])
            steps = calls.extend(ticket, units, costs)
        elif case["call"] == "commit":
            steps = calls.commit(ticket, {"units": units, "costs": costs})
        else:
            steps = calls.cancel(ticket)
        post, result = finish(steps, replies(200, json.dumps(case["answer"]), "application/json"))
        sent = json.loads(post.body)
        sent.pop("timeout_ms", None)
        self.assertEqual(post.path, case["path"])
        self.assertEqual(sent, json.loads(json.dumps(case["request"]).replace("{id}", ID)))
        self.assertEqual(bool(post.key), case["keyed"])
        want = case["want"]
        if case["call"] == "decide":
            self.assertEqual([vars(d) for d in result], want)
        elif case["call"] == "reserve":
            ticket = Ticket(*result)
            got = {name: ticket.reserved(name) for name in want["reserved"]}
            self.assertEqual({"allowed": ticket.allowed, "id": ticket.id, "reserved": got}, want)
        elif case["call"] == "extend":
            self.assertEqual(result.allowed, want["allowed"])
        elif case["call"] == "commit":
            self.assertEqual(result, want["late"])

    @each("errors")
    def test_errors(self, case):
        reply = replies(case["status"], case["body"], case["type"])
        if reply.status != 200:
            self.assertEqual(judge(case["call"], reply)[1], case["again"])
        calls = Calls(Options(retries=0))
        ticket = Ticket(
            Request({"tenant": "acme"}), Decision(allowed=True, reason="limit", status=200), ID
        )
        steps = {
            "decide": lambda: calls.decide([Request({"tenant": "acme"})]),
            "reserve": lambda: calls.reserve(Request({"tenant": "acme"}), 60),
            "extend": lambda: calls.extend(ticket, 1, {}),
            "commit": lambda: calls.commit(ticket, {"units": 1}),
            "cancel": lambda: calls.cancel(ticket),
        }[case["call"]]()
        if case["want"] == "problem":
            with self.assertRaises(Problem) as raised:
                finish(steps, reply)
            self.assertEqual(raised.exception.status, case["status"])
            self.assertEqual(raised.exception.detail, case["detail"])
        elif case["call"] in ("commit", "cancel"):
            with self.assertRaises(Unavailable):
                finish(steps, reply)
        else:
            _, result = finish(steps, reply)
            decision = {"decide": lambda: result[0], "reserve": lambda: result[1]}.get(
                case["call"], lambda: result
            )()
            self.assertEqual((decision.allowed, decision.reason), (False, "unknown"))

    @each("answers")
    def test_answers(self, case):
        decision = Decision.read(case["decision"])
        self.assertEqual(dict(headers(decision)), case["headers"])
        if case["problem"] is None:
            self.assertTrue(decision.allowed)
            return
        body = json.loads(problem(decision))
        self.assertTrue(body.pop("title"))
        self.assertEqual(body, case["problem"])

    @each("paths")
    def test_paths(self, case):
        self.assertEqual(clean_path(case["path"]), case["clean"])


class OutOfRange(unittest.TestCase):
    def test_options(self):
        for wrong in ({"failure_mode": "maybe"}, {"timeout": 0}, {"retries": -1}, {"connections": 0}):
            for make in (Client, AsyncClient):
                with self.subTest(wrong), self.assertRaises(ValueError):
                    make("127.0.0.1:7610", **wrong)

    def test_addresses(self):
        for wrong in ("", "localhost", "localhost:", ":80", "h:0", "h:99999", "unix:", "h:٣"):
            with self.subTest(wrong), self.assertRaises(ValueError):
                Client(wrong)
        for right in ("localhost:80", "http://localhost:80/", "[::1]:80", "unix:/run/x", "unix:///run/x"):
            Client(right).close()
