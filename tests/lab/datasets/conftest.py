"""A server on this machine that can misbehave."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from racecar_lab.datasets import download


class Server(ThreadingHTTPServer):
    """Files by path, and how to misbehave in the next answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.next: dict[str, list[str]] = defaultdict(list)
        """Path → behaviours of the coming answers: "cut", "no length", "no range", "503", "other range", "endless",
        "length …" (a header), "to …" (another address)."""
        self.asked: list[tuple[str, str | None]] = []
        """Path and Range of every request."""
        self.sent = 0
        """Bytes of what does not end."""

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        path, asked = self.path.lstrip("/"), self.headers["Range"]
        self.server.asked.append((path, asked))
        how = self.server.next[path].pop(0) if self.server.next[path] else ""
        content = self.server.files.get(path)
        if content is None or how == "503":
            self.send_error(503 if how == "503" else 404)
            return
        if how.startswith("to "):
            self.send_response(302)
            self.send_header("Location", how.removeprefix("to "))
            self.end_headers()
            return
        if how == "endless":
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(bytes(1 << 16))
                    self.server.sent += 1 << 16
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and how != "no range" else 0
        if start >= len(content) > 0:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            first = start + 1 if how == "other range" else start
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        if how != "no length":
            length = how.removeprefix("length ") if how.startswith("length ") else len(content) - start
            self.send_header("Content-Length", str(length))
        self.end_headers()
        stop = start + (len(content) - start) // 2 if how in ("cut", "no length") else len(content)
        self.wfile.write(content[start:stop])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    """The server, which has no certificate; between tries nobody waits."""
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setattr(download, "SCHEMES", ("http",))
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()
