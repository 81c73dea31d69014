"""An agent that answers what a test says, and keeps what it was asked."""

import http.server
import json
import threading


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        pass  # a client that hung up


class FakeAgent:
    """answers are functions of (path, body, headers) that return (status, headers, text); the last one stays."""

    def __init__(self, *answers):
        self.answers, self.asked, self.connections = list(answers), [], 0
        agent = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # an answer in one write

            def setup(self):
                super().setup()
                agent.connections += 1

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                agent.asked.append((self.path, body, self.headers))
                answer = agent.answers.pop(0) if len(agent.answers) > 1 else agent.answers[0]
                said = answer(self.path, body, self.headers)
                if said is None:  # hangs up
                    self.close_connection = True
                    return
                status, headers, text = said
                self.send_response(status)
                if "Transfer-Encoding" not in headers:
                    headers = {"Content-Length": len(text.encode()), **headers}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = "127.0.0.1:%d" % self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def says(status, body, **headers):
    """An answer that is always the same. Underscores of header names stand for hyphens."""
    text = body if isinstance(body, str) else json.dumps(body)
    kind = {"Content-Type": "application/json" if status == 200 else "application/problem+json"}
    return lambda *_: (status, {**kind, **{n.replace("_", "-"): v for n, v in headers.items()}}, text)


def hangs_up(*_):
    return None


ALLOWED = {"allowed": True, "reason": "limit", "status": 200, "retry_after_seconds": 0}
DENIED = {"allowed": False, "reason": "limit", "status": 429, "retry_after_seconds": 30}
RESERVED = says(200, {"decision": ALLOWED, "reservation": {"id": "AQ", "expires_seconds": 60}})


def decides(decision):
    """Decides each request alike."""
    return lambda path, body, headers: (
        200,
        {"Content-Type": "application/json"},
        json.dumps({"decisions": [decision] * len(body["requests"])}),
    )
