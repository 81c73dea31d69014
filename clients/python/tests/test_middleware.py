import asyncio
import json
import unittest
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

from quota import ASGI, WSGI, AsyncClient, Client

from .fake import ALLOWED, DENIED, FakeAgent, decides

LIMIT = {"limit": "requests", "quota": 5, "window_seconds": 60, "remaining": 4, "reset_seconds": 12}
ATTRIBUTES = {
    "tenant": "acme",
    "ip": "192.0.2.7",
    "endpoint": "POST /app/orders/ü",
    "method": "POST",
}


def wsgi(agent, app):
    """The status, headers and body of one request."""
    environ = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "/app",
        "PATH_INFO": "//x/../orders/ü".encode().decode("latin-1"),
        "HTTP_X_TENANT": "acme",
        "REMOTE_ADDR": "192.0.2.7",
        "CONTENT_LENGTH": "0",
        "QUERY_STRING": "",
    }
    setup_testing_defaults(environ)
    told = []
    with Client(agent.address) as quota:
        answer = validator(WSGI(app, quota))(environ, lambda status, headers, _=None: told.extend((status, headers)))
        body = b"".join(answer)
        answer.close()
    return int(told[0][:3]), {n.lower(): v for n, v in told[1]}, body


def asgi(agent, app):
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/app//x/../orders/ü",
        "headers": [(b"x-tenant", b"acme")],
        "client": ("192.0.2.7", 1234),
    }
    sent = []

    async def send(message):
        sent.append(message)

    async def call():
        async with AsyncClient(agent.address) as quota:
            await ASGI(app, quota)(scope, None, send)

    asyncio.run(call())
    headers = {n.decode(): v.decode() for n, v in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(m["body"] for m in sent[1:])


def wsgi_hello(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]


async def asgi_hello(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hello"})


class Middleware(unittest.TestCase):
    def test_allowed(self):
        for ask, app in (wsgi, wsgi_hello), (asgi, asgi_hello):
            with self.subTest(ask.__name__), FakeAgent(decides({**ALLOWED, **LIMIT})) as agent:
                status, headers, body = ask(agent, app)
                self.assertEqual((status, body), (200, b"hello"))
                self.assertEqual(headers["ratelimit"], '"requests";r=4;t=12')
                self.assertEqual(headers["content-type"], "text/plain")
                self.assertEqual(agent.asked[0][1]["requests"], [{"attributes": ATTRIBUTES, "units": 1}])

    def test_denied(self):
        for ask in wsgi, asgi:
            with self.subTest(ask.__name__), FakeAgent(decides({**DENIED, **LIMIT})) as agent:
                status, headers, body = ask(agent, None)
                self.assertEqual(status, 429)
                self.assertEqual(headers["retry-after"], "30")
                self.assertEqual(headers["content-type"], "application/problem+json")
                self.assertEqual(json.loads(body)["violated-policies"], ["requests"])

    def test_other_scopes_go_on(self):
        went = []

        async def app(scope, receive, send):
            went.append(scope["type"])

        with FakeAgent(decides(DENIED)) as agent:
            asyncio.run(ASGI(app, AsyncClient(agent.address))({"type": "lifespan"}, None, None))
            self.assertEqual((went, agent.asked), (["lifespan"], []))
