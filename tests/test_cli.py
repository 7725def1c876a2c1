"""The command line by itself: arguments, exit codes, one line per failure, crash logs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from eagletui import __version__, cli
from eagletui.cli.errors import Exit, exit_of, explain
from eagletui.cli.parser import VERBS, build_parser, given_by
from eagletui.hosts.base import HostError


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"eagletui {__version__}\n"
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(verb.name in out and verb.help.split(",")[0] in " ".join(out.split()) for verb in VERBS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no command given"),
        (["statsu", "local"], "no command 'statsu', did you mean 'status'?"),
        (["zzz"], "no command 'zzz' - see"),
        (["status"], "missing: TARGET"),
        (["connect", "local", "--nope"], "unrecognized arguments: --nope"),
        (["connect", "local", "--identity"], "expected one argument"),
    ],
)
def test_wrong_arguments_are_one_line_with_a_remedy(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == Exit.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("eagletui: arguments: ")
    assert words in captured.err
    assert "--help`" in captured.err
    assert captured.err.count("\n") == 1


def test_only_what_was_given_goes_before_the_configuration() -> None:
    parser = build_parser()
    assert given_by(parser.parse_args(["status", "local"])) == {}
    options = parser.parse_args(["connect", "h", "--readonly", "--strict", "--no-ssh-config", "--identity", "k"])
    assert given_by(options) == {"readonly": True, "strict": True, "ssh_config": False, "identity": "k"}


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("name", 3),
        ("refused", 3),
        ("auth", 3),
        ("key-changed", 3),
        ("config", 2),
        ("no-python", 4),
        ("agent", 4),
        ("protocol", 4),
    ],
)
def test_exit_codes_of_failures(kind: str, code: int) -> None:
    assert exit_of(HostError("step", "why", kind=kind)) == code


def test_a_failure_is_one_clean_line(capsys: pytest.CaptureFixture[str]) -> None:
    error = HostError("log in", "no key was\naccepted \x1b]52;c;aGk=\x07", "add your key", kind="auth")
    assert explain(error, []) == Exit.CONNECTION
    assert capsys.readouterr().err == "eagletui: log in: no key was accepted - add your key\n"


def test_an_unforeseen_error_leaves_a_crash_log_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("eagletui.cli.doctor.run", lambda _options: 1 // 0)
    assert cli.main(["doctor", "local"]) == Exit.INTERNAL
    line = capsys.readouterr().err
    assert line.startswith("eagletui: internal error: ZeroDivisionError: ")
    assert line.count("\n") == 1
    (log,) = (tmp_path / "eagletui" / "crashes").iterdir()
    assert str(log) in line
    text = log.read_text()
    assert "Traceback" in text
    assert "['doctor', 'local']" in text
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_crash_log_that_cannot_be_written_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "eagletui").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert explain(RuntimeError("odd"), []) == Exit.INTERNAL
    assert "no crash log could be written" in capsys.readouterr().err


def test_ctrl_c_and_a_config_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("eagletui.cli.status.run", interrupt)
    assert cli.main(["status", "local"]) == Exit.INTERRUPTED
    assert capsys.readouterr().err == ""
    monkeypatch.undo()
    assert cli.main(["status", "-oProxyCommand=x"]) == Exit.USAGE
    assert cli.main(["status", "a b"]) == Exit.USAGE


def test_a_closed_pipe_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    code = "import sys; from eagletui import cli; sys.exit(cli.main(['doctor', 'a b', '--json']) and cli.main(['--help']))"
    done = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert "Traceback" not in done.stderr


def test_the_lab_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "lab")
    assert cli.main(["lab", "status", "--dir", place]) == 1
    assert "eagletui lab up" in capsys.readouterr().out
    assert cli.main(["lab", "remove", "--dir", place]) == 0
    (tmp_path / "lab").mkdir()
    assert cli.main(["lab", "remove", "--dir", place, "--yes"]) == 1
    assert capsys.readouterr().err.startswith("eagletui: lab remove: ")
    assert (tmp_path / "lab").is_dir()
