"""A job from a job file over a real sshd: our own program runs there under a plain python, from what the agent brought along."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.jobs_harness import Jobs
from tests.host.sshd import Sshd
from tests.host.test_commands import eagletui


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "state"
    yield path
    left = Jobs(path)
    left.launched = [job.name for job in (path / "jobs").iterdir()] if (path / "jobs").is_dir() else []
    left.clean()


async def test_our_own_program_runs_on_a_host_without_an_installation(
    servers: Callable[[], Sshd], key: Path, known: Path, root: Path, tmp_path: Path
) -> None:
    sshd = servers()
    sshd.allow(Path(f"{key}.pub"))
    known.write_text(sshd.known_line())
    await sshd.start(f"SetEnv EAGLETUI_STATE={root}")
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "config.json").write_text("{}")
    path = tmp_path / "copy.toml"
    # a python that has no eagletui: what it imports came over the line
    path.write_text(
        f'kind = "download"\nsource = "{tmp_path}/from"\noutput = "{tmp_path}/to"\npython = "{sys.executable}"\nspare = 0\n'
        '[env]\nPYTHONDONTWRITEBYTECODE = "1"\n'
    )
    done = await eagletui("run", f"root@127.0.0.1:{sshd.port}", str(path), "--wait", "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["outcome"] == "ok"
    assert answer["job"]["outcome"] == "1 files, 2 B, 1 checked by hash"
    assert (tmp_path / "to" / "config.json").read_text() == "{}"
    (code,) = [entry for entry in (root / "code").iterdir() if entry.is_dir()]
    assert (code / "eagletui" / "jobs" / "on_host" / "download.py").is_file()
    assert list((root / "code").glob("*.blob"))
