"""A hub of one repository, as huggingface_hub asks for it: sizes and hashes, files behind a redirect to another host."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "c" * 40


class FakeHub:
    """``files`` are the repository's. ``token``: who sends another one is refused; ``cut`` bytes after which a connection is cut,
    once for each file; ``told`` hashes that are not true. ``asked`` holds what came: (path, range, whether with a token).
    """

    def __init__(self, files: dict[str, bytes], token: str | None = None, cut: int | None = None) -> None:
        self.files, self.token, self.cut = files, token, cut
        self.told: dict[str, str] = {}
        self.asked: list[tuple[str, str | None, bool]] = []
        self.hold = threading.Event()
        self.hold.set()
        self._cut: set[str] = set()
        self._servers = [self._serve(self._hub), self._serve(self._store)]
        self.endpoint, self._far = (f"http://127.0.0.1:{server.server_port}" for server in self._servers)

    def close(self) -> None:
        self.hold.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def _serve(self, answer: Any) -> ThreadingHTTPServer:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                answer(self)

            do_HEAD = do_GET

            def log_message(self, *_args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def _hub(self, request: BaseHTTPRequestHandler) -> None:
        given = request.headers.get("Authorization")
        path = request.path.partition("?")[0]
        self.asked.append((path, request.headers.get("Range"), given is not None))
        if self.token is not None and given != f"Bearer {self.token}":
            self._say(request, 401, b'{"error": "no"}', {"X-Error-Code": "RepoNotFound"})
        elif path.startswith("/api/models/o/m/revision/main"):
            self._say(request, 200, json.dumps({"id": "o/m", "sha": COMMIT, "siblings": self._siblings()}).encode())
        elif path.startswith(f"/o/m/resolve/{COMMIT}/"):
            self._say(request, 302, b"", {"Location": self._far + "/" + path.split("/", 5)[5]})
        else:
            self._say(request, 404, b'{"error": "no"}', {"X-Error-Code": "RepoNotFound"})

    def _siblings(self) -> list[dict[str, Any]]:
        out = []
        for name, data in self.files.items():
            item: dict[str, Any] = {"rfilename": name, "size": len(data)}
            item["blobId"] = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            if name.endswith(".safetensors"):
                sha = self.told.get(name) or hashlib.sha256(data).hexdigest()
                item["lfs"] = {"size": len(data), "sha256": sha, "pointerSize": 130}
            out.append(item)
        return out

    def _store(self, request: BaseHTTPRequestHandler) -> None:
        name = request.path.lstrip("/")
        span = request.headers.get("Range")
        self.asked.append(("far/" + name, span, request.headers.get("Authorization") is not None))
        data = self.files[name]
        start = int(span.removeprefix("bytes=").rstrip("-")) if span else 0
        body = data[start:]
        request.send_response(206 if span else 200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if self.cut is not None and name not in self._cut and len(body) > self.cut:
            self._cut.add(name)
            request.wfile.write(body[: self.cut])
            request.wfile.flush()
            self.hold.wait(60)
            request.close_connection = True
            return
        request.wfile.write(body)

    @staticmethod
    def _say(request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        request.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)
