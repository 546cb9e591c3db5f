"""A model behind an OpenAI-compatible endpoint, for tests of judges."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Model(BaseHTTPRequestHandler):
    """Answers as the test says, and counts how many questions it holds at once."""

    answer, status, now, most = "", 200, 0, 0
    asked: dict[str, Any]
    lock = threading.Lock()

    def do_POST(self) -> None:
        with Model.lock:
            Model.now += 1
            Model.most = max(Model.most, Model.now)
        Model.asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        time.sleep(0.02)
        with Model.lock:
            Model.now -= 1
        body = json.dumps({"choices": [{"message": {"content": Model.answer}}]}).encode()
        self.send_response(Model.status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def serving() -> Iterator[str]:
    """Serve it on a port of this machine; gives the base URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()
