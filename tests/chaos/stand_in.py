"""The jobs of the chaos run: a program whose every byte is known beforehand, and a cheap server. Only the standard library.

Both note their pid in ``--starts`` when they begin and their exit status in ``--ends`` when they end by themselves, so that a
host which starts one twice, or gives one a wrong status, is found out. Line ``i`` of a log is `line`. A file named ``--orders``
says what to do next: ``flood N`` (lines), ``quit N`` (exit status).
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LINE = 64


def line(tag: str, number: int) -> bytes:
    """Line ``number`` of the log of ``tag``: exactly `LINE` bytes."""
    text = f"{tag} {number:012d} "
    return (text + "." * (LINE - len(text) - 1) + "\n").encode()


def lines(tag: str, first: int, count: int) -> bytes:
    return b"".join(line(tag, number) for number in range(first, first + count))


class Writer:
    """Writes the log, and knows how much of it there is."""

    def __init__(self, tag: str, ends: str) -> None:
        self.tag, self.ends, self.count = tag, ends, 0

    def write(self, count: int) -> None:
        while count > 0:
            some = min(count, 1024)
            data = lines(self.tag, self.count, some)
            while data:
                data = data[os.write(1, data) :]
            self.count += some
            count -= some

    def end(self, status: int) -> None:
        """Note what is true, then end with that status."""
        with open(self.ends + ".new", "w") as file:
            json.dump({"rc": status, "bytes": self.count * LINE}, file)
        os.replace(self.ends + ".new", self.ends)
        os._exit(status)


def append(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, text.encode())
    os.close(fd)


def take_order(path: str) -> list:
    """The words of the next order, which is taken away; empty when there is none."""
    try:
        with open(path) as file:
            words = file.read().split()
        os.unlink(path)
    except FileNotFoundError:
        return []
    return words


def serve(port: int, writer: Writer) -> None:
    """Answer as vLLM does: health, models, metrics, one short completion."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            if self.path == "/metrics":
                page = f"vllm:generation_tokens_total {writer.count}.0\nvllm:num_requests_running 1.0\n"
                self.answer(200, page.encode())
            elif self.path == "/v1/models":
                self.answer(200, b'{"data": [{"id": "stand-in", "max_model_len": 4096}]}')
            else:
                self.answer(200 if self.path == "/health" else 404, b"")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.answer(200, b'{"choices": [{"text": "Paris"}], "usage": {"completion_tokens": 16}}')

        def log_message(self, *_: object) -> None:
            """Nothing: each byte of the log is the writer's."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def worker() -> None:
    """A helper in a session of its own, as engines have; it lives until it is ended."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            time.sleep(60)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--tag", "--starts", "--ends", "--orders"):
        parser.add_argument(name, required=True)
    parser.add_argument("--lines", type=int, default=0, help="write so many and exit with --status; else until ended")
    parser.add_argument("--status", type=int, default=0)
    parser.add_argument("--port", type=int)
    parser.add_argument("--worker", action="store_true")
    args = parser.parse_args()
    append(args.starts, f"{os.getpid()}\n")
    writer = Writer(args.tag, args.ends)
    if args.worker:
        worker()
    if args.port is not None:
        try:
            serve(args.port, writer)
        except OSError:
            writer.end(98)
    if args.lines:
        writer.write(args.lines)
        writer.end(args.status)
    while True:
        writer.write(1)
        order = take_order(args.orders)
        if order[:1] == ["flood"]:
            writer.write(int(order[1]))
        elif order[:1] == ["quit"]:
            writer.end(int(order[1]))
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
