"""What an extracting server really hands out is asked with one small request, before thousands are sent."""

from __future__ import annotations

import fcntl
import json
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from eagletui.jobs.on_host import extract as program
from eagletui.jobs.on_host.probe import NoStates, probe
from tests.jobs.tensor_files import write

IDS = [5, 6, 7]


class Server:
    """Answers as vLLM does; ``answer`` makes the answer to a completion."""

    def __init__(self) -> None:
        self.models: list[dict[str, str]] = [{"id": "m"}]
        self.answer: Callable[[dict[str, Any]], tuple[int, dict[str, Any]]] = lambda body: (200, {})
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(200, {"data": outer.models})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._send(*outer.answer(body))

            def _send(self, status: int, doc: dict[str, Any]) -> None:
                data = json.dumps(doc).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.http.server_address[1]}/v1"
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()
    made.thread.join()


def handing(path: Path, tokens: int = 3, layers: int = 4, width: int = 6, dtype: str = "BF16") -> Callable[[dict[str, Any]], Any]:
    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        assert body["prompt"] == IDS
        assert body["max_tokens"] == 1
        ids = ("I64", (tokens,), struct.pack(f"<{tokens}q", *range(tokens)))
        write(path, {"token_ids": ids, "hidden_states": (dtype, (tokens, layers, width), None)})
        Path(str(path) + ".lock").touch()
        return 200, {"kv_transfer_params": {"hidden_states_path": str(path)}}

    return answer


def test_what_it_hands_out_and_nothing_stays_behind(tmp_path: Path, server: Server) -> None:
    server.answer = handing(tmp_path / "x.safetensors", dtype="F32")
    found = probe(server.endpoint, IDS, 30)
    assert (found.layers, found.width, found.dtype, found.storage) == (4, 6, "float32", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_still_being_written_is_waited_for(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "x.safetensors"
    ready = threading.Event()

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        lock = open(str(path) + ".lock", "w")  # noqa: SIM115 - a thread lets go of it
        fcntl.flock(lock, fcntl.LOCK_EX)

        def finish() -> None:
            ready.wait(30)
            handing(path)(body)
            lock.close()

        threading.Thread(target=finish, daemon=True).start()
        return 200, {"kv_transfer_params": {"hidden_states_path": str(path)}}

    server.answer = answer
    timer = threading.Timer(0.2, ready.set)
    timer.start()
    assert probe(server.endpoint, IDS, 30).width == 6
    timer.join()


def test_what_is_no_extracting_server(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "x.safetensors"
    cases: list[tuple[Any, str]] = [
        (lambda body: (200, {"choices": []}), "answers without hidden states: start it with method extract_hidden_states"),
        (lambda body: (500, {"error": "boom"}), "refuses the first sample .500: .*boom"),
        (lambda body: (200, {"kv_transfer_params": {"hidden_states_path": "rel/x"}}), "absolute path"),
        (lambda body: (200, {"kv_transfer_params": {"hidden_states_path": str(tmp_path / "none")}}), "on this machine"),
        (handing(path, tokens=2), "of 3 tokens .* is its prefix cache off"),
        (handing(path, dtype="I32"), "states in I32"),
    ]
    for answer, says in cases:
        server.answer = answer
        with pytest.raises(NoStates, match=says):
            probe(server.endpoint, IDS, 30)
    server.models = []
    with pytest.raises(NoStates, match="no model yet"):
        probe(server.endpoint, IDS, 30)


def test_no_server_at_all() -> None:
    with pytest.raises(NoStates, match="no server answers at"):
        probe("http://127.0.0.1:1/v1", IDS, 5)
    with pytest.raises(NoStates, match="is no address"):
        probe("ftp://x", IDS, 5)


def test_a_server_of_other_layers_is_refused(tmp_path: Path, server: Server) -> None:
    """Its layers are given when it starts: a drafter trained on others would accept nothing, and nothing would say so."""
    server.answer = handing(tmp_path / "passing" / "x.safetensors", layers=3)
    handed = probe(server.endpoint, IDS, 30)
    argv = ["--data", "d", "--output", str(tmp_path / "hs"), "--target", "t", "--reserve", "0"]
    options = program._parser().parse_args(argv)
    rows = [program.Row(3, 0)]
    with pytest.raises(program.Refused, match="hands out 3 layers of 6 numbers, and 4 of 6 are wanted"):
        program._as_handed(options, handed, program.Layout(4, 6), rows)
    fits = handed._replace(layers=4, dtype="float32")
    assert program._as_handed(options, fits, program.Layout(4, 6), rows).bytes > 3 * 4 * 6 * 4
    assert options.storage == str(tmp_path / "passing")
    options.dtype = "bfloat16"
    with pytest.raises(program.Refused, match="computes in float32"):
        program._as_handed(options, fits, program.Layout(4, 6), rows)
