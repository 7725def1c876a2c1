"""What tests of a synthesis share: settings, prompts, runs in this process or in one that can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from eagletui.jobs.on_host import synthesise
from eagletui.jobs.on_host.telling import Teller
from tests.jobs.openai_server import OpenAIServer

SRC = Path(__file__).resolve().parents[2] / "src"


def settings_for(tmp_path: Path, server: OpenAIServer | str, rows: list[Any] | int = 5, **more: Any) -> dict[str, Any]:
    """The settings of a run over these prompts (or so many of them), as the kind hands them on."""
    prompts = tmp_path / "prompts.jsonl"
    if isinstance(rows, int):
        rows = [{"id": f"p{n}", "messages": [{"role": "user", "content": f"question {n}"}]} for n in range(rows)]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = {
        "prompts": str(prompts),
        "output": str(tmp_path / "out"),
        "endpoint": server if isinstance(server, str) else server.endpoint,
        "max_tokens": 64,
        "concurrency": 4,
        "retries": 2,
        "request_timeout": 60.0,
        "server_wait": 60.0,
        "keep_truncated": True,
        "keep_empty": False,
        "skip_invalid": False,
        "stop_after_failures": 50,
        "tool": "eagletui",
    }
    return {**values, **more}


async def run(settings: dict[str, Any]) -> dict[str, Any]:
    """A whole run in this process. Returns its summary; raises what stops it."""
    teller = Teller("prompts")
    prompts = synthesise.read_prompts(settings, teller)
    return await synthesise.Run(settings, prompts, teller).go()


def rows_of(settings: dict[str, Any], name: str = "answers.jsonl") -> list[dict[str, Any]]:
    """The rows of a file of the output, in its order; each line must be whole."""
    path = Path(settings["output"]) / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def by_id(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rows by id, without what differs from run to run; an id that is there twice is an error."""
    out = {row["id"]: {name: value for name, value in row.items() if name != "seconds"} for row in rows}
    assert len(out) == len(rows), "a row is there twice"
    return out


class Forker:
    """Runs of a program in processes of their own, which can be killed (see `forker`)."""

    def __init__(self, module: str, log: Path) -> None:
        self._module, self._log = module, log

    async def __aenter__(self) -> Forker:
        env = {**os.environ, "PYTHONPATH": str(SRC), "FORKER_LOG": str(self._log)}
        script = str(Path(__file__).with_name("forker.py"))
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, script, self._module, stdin=pipe, stdout=pipe, env=env
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def start(self, settings: dict[str, Any]) -> int:
        """Start a run. Returns its pid."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(settings).encode() + b"\n")
        return int(await self._process.stdout.readline())

    async def status(self) -> int:
        """Wait for the run's end. Returns its exit status, negative for a signal."""
        assert self._process.stdout is not None
        return int(await self._process.stdout.readline())

    async def kill(self, pid: int) -> None:
        """Kill the run as nothing can be prepared for."""
        os.kill(pid, signal.SIGKILL)

    def told(self) -> list[dict[str, Any]]:
        """What the runs have told, in order."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [json.loads(line) for line in lines if line.startswith('{"eagletui"')]
