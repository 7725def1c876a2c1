"""A stand-in for an engine, for faults: prints a load like vLLM's, forks workers with sessions of their own, answers on a port.

Tests only. Standard library; started with ``python -I -S``.
"""

import argparse
import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

p = argparse.ArgumentParser()
p.add_argument("model", nargs="?")
p.add_argument("--host")
p.add_argument("--port", type=int, required=True)
p.add_argument("--workers", type=int, default=2)
p.add_argument("--ignore-term", action="store_true")
p.add_argument("--lose-term", action="store_true", help="the first SIGTERM while loading does nothing")
p.add_argument("--workers-ignore-term", action="store_true")
p.add_argument("--hold", help="load until this file appears")
p.add_argument("--key", help="answer 401 without it")
p.add_argument("--shm", action="append", default=[], help="a file in /dev/shm that the workers map")
p.add_argument("--page", help="answer /metrics with this file while it is there; an empty one is a 404")
p.add_argument("--fail", help="print this error while loading and exit 1")
p.add_argument("--forks", action="store_true", help="workers fork on and on")
args = p.parse_args()


def say(text, process="APIServer"):
    stamp = time.strftime("%m-%d %H:%M:%S")
    os.write(2, f"({process} pid={os.getpid()}) INFO {stamp} [fake.py:1] {text}\n".encode())


def worker(number):
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if args.workers_ignore_term else signal.SIG_DFL)
    maps = []
    for name in args.shm:
        import mmap

        fd = os.open(name, os.O_RDWR)
        maps.append(mmap.mmap(fd, 4096))
        os.close(fd)
    while True:
        if args.forks and os.fork() == 0:
            time.sleep(0.3)
            os._exit(0)
        time.sleep(0.05 if args.forks else 60)


if args.ignore_term:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if args.lose_term:
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))
say("version 0.32.0")
say("Initializing a V1 LLM engine (v0.32.0) with config: model='/models/fake', speculative_config=None", "EngineCore")
for name in args.shm:
    with open(name, "wb") as file:
        file.write(b"\0" * 4096)
pids = []
for number in range(args.workers):
    pid = os.fork()
    if pid == 0:
        worker(number)
    pids.append(pid)
say("Starting to load model /models/fake...", "Worker_TP0")
while args.fail and args.hold and not os.path.exists(args.hold):
    time.sleep(0.02)
if args.fail:
    os.write(2, b'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n' + args.fail.encode() + b"\n")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    sys.exit(1)
for shard in range(5):
    os.write(
        2,
        b"\rLoading safetensors checkpoint shards:  %d%% Completed | %d/4 [00:0%d<00:01,  1.2it/s]\n"
        % (shard * 25, shard, shard),
    )
while args.hold and not os.path.exists(args.hold):
    time.sleep(0.02)
say("Loading weights took 0.10 seconds", "Worker_TP0")
say("Model loading took 0.5 GiB memory and 0.2 seconds", "Worker_TP0")
say("init engine (profile, create kv cache, warmup model) took 0.10 s", "EngineCore")


class Handler(BaseHTTPRequestHandler):
    count = 0

    def answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/health":
            self.answer(200, b"")
        elif self.path == "/metrics" and args.page and os.path.exists(args.page):
            with open(args.page, "rb") as file:
                page = file.read()
            self.answer(200 if page else 404, page, "text/plain")
        elif self.path == "/metrics":
            Handler.count += 1
            self.answer(
                200,
                b'# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total{engine="0",model_name="fake"} %d.0\n'
                b'vllm:num_requests_running{engine="0",model_name="fake"} 1.0\n' % Handler.count,
                "text/plain",
            )
        elif self.path == "/v1/models":
            if args.key and self.headers.get("Authorization") != "Bearer " + args.key:
                self.answer(401, b'{"error": "Unauthorized"}')
            else:
                self.answer(200, json.dumps({"data": [{"id": "fake", "max_model_len": 4096}]}).encode())
        else:
            self.answer(404, b"{}")

    def do_POST(self):
        if self.path == "/never":
            say("a request that takes for ever")
            time.sleep(600)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(200, b'{"choices": [{"text": " Paris"}], "usage": {"completion_tokens": 16}}')

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", args.port), Handler)
if not args.ignore_term:

    def stop(*_):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL if args.workers_ignore_term else signal.SIGTERM)
            except ProcessLookupError:
                pass
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
os.write(2, b"INFO:     Started server process [%d]\nINFO:     Application startup complete.\n" % os.getpid())
server.serve_forever()
