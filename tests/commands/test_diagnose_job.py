"""`eagletui diagnose HOST --job JOB` over a real ssh connection: jobs whose programs print what real engines printed."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conftest import jobs  # noqa: F401 - a fixture
from tests.agent.jobs_harness import Jobs
from tests.engines.test_diagnosis import CAUSES, DATA
from tests.host.conftest import home, key, known, servers, short_path  # noqa: F401 - fixtures
from tests.host.sshd import Sshd

NAMES = ("bad_vocab_drafter", "corrupt_shard", "eagle3_on_torch_native_refused", "port_busy_other_server")
RECORDED = [path for path in sorted(DATA.glob("*-*/*.log")) if path.stem in NAMES]


@pytest.fixture
async def host(
    jobs: Jobs,  # noqa: F811
    servers: Callable[[], Sshd],  # noqa: F811
    key: Path,  # noqa: F811
    known: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Sshd:
    """A real sshd whose agent keeps its jobs where ``jobs`` looks."""
    for name in ("config", "state", "cache"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    server = servers()
    server.allow(Path(f"{key}.pub"))
    known.write_text(server.known_line())
    return await server.start(f"SetEnv EAGLETUI_STATE={jobs.root}")


async def diagnose(host: Sshd, job: str) -> tuple[int, dict[str, Any]]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "eagletui", "diagnose", f"root@127.0.0.1:{host.port}", "--job", job, "--json",
        stdin=DEVNULL, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    async with asyncio.timeout(90):
        out, err = await child.communicate()
    assert out, err.decode()
    return child.returncode or 0, json.loads(out)


def failing(jobs: Jobs, log: Path, end: str) -> dict[str, Any]:  # noqa: F811
    """A server that prints this log and ends."""
    engine = log.parent.name.partition("-")[0]
    return jobs.spec(
        "/bin/sh", "-c", f"cat {shlex.quote(str(log))}; {end}", id=f"t-{log.stem.replace('_', '-')}", engine=engine, kind="serve",
        server=True, port=1, smoke=False,
    )  # fmt: skip


async def test_each_recorded_failure_is_diagnosed_on_another_host(jobs: Jobs, host: Sshd) -> None:  # noqa: F811
    for log in RECORDED:
        jobs.launch(failing(jobs, log, "exit 1"))
    for log in RECORDED:
        job = f"t-{log.stem.replace('_', '-')}"
        jobs.over(job)
        code, told = await diagnose(host, job)
        assert (code, told["outcome"]) == (1, "failed"), told
        assert told["causes"][0]["id"] == CAUSES[log.stem], (log, told)
        lines = log.read_bytes().decode("utf-8", "replace").split("\n")
        for place in told["causes"][0]["evidence"]:
            assert place["text"][:200] in lines[place["line"] - 1]


async def test_how_it_ended_counts_where_the_log_says_nothing(jobs: Jobs, host: Sshd, tmp_path: Path) -> None:  # noqa: F811
    log = DATA / "vllm-0.32" / "sigterm_load.log"
    beginning = tmp_path / "load.log"
    beginning.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:20]))
    jobs.launch({**failing(jobs, log, ""), "id": "t-killed", "argv": ["/bin/sh", "-c", f"cat {beginning}; kill -9 $$"]})
    jobs.over("t-killed")
    code, told = await diagnose(host, "t-killed")
    assert code == 1
    assert told["causes"][0]["id"] == "killed-9", told


async def test_a_job_that_ended_in_good_order_has_no_cause(jobs: Jobs, host: Sshd) -> None:  # noqa: F811
    jobs.launch({**failing(jobs, RECORDED[0], ""), "id": "t-good", "argv": ["/bin/sh", "-c", "echo well; exit 0"]})
    jobs.over("t-good")
    code, told = await diagnose(host, "t-good")
    assert (code, told["causes"]) == (0, [])
