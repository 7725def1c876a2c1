"""The configuration: what is right is used, what is wrong is told with file and line, and does not harm the rest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eagletui.config import Config, line_of, load_config, parse_config

FILE = Path("/home/u/.config/eagletui/config.toml")


def notices(text: str) -> list[str]:
    return [str(notice) for notice in parse_config(text, FILE).notices]


def test_everything_that_can_be_set() -> None:
    config = parse_config(
        """
        readonly = true
        identity = "~/keys/gpu"
        [intervals]
        gpus = 2
        host = 4.5
        [keys]
        help = "f1"
        quit = ["ctrl+x", "f10"]
        [hosts.gpu-host]
        gpus = 8
        readonly = false
        strict = true
        ssh_config = false
        [hosts.gpu-host.intervals]
        gpus = 1
        """,
        FILE,
    )
    assert config.notices == ()
    assert config.keys == {"help": "f1", "quit": "ctrl+x,f10"}
    other = config.for_host("elsewhere")
    assert other.readonly
    assert other.gpus is None
    assert other.identity == os.path.expanduser("~/keys/gpu")
    assert other.intervals == {"gpus": 2.0, "host": 4.5}
    own = config.for_host("gpu-host")
    assert (own.readonly, own.gpus, own.strict, own.ssh_config) == (False, 8, True, False)
    assert own.intervals == {"gpus": 1.0, "host": 4.5}


def test_later_names_of_a_host_win() -> None:
    config = parse_config('[hosts.box]\ngpus = 4\n[hosts."root@box"]\ngpus = 8\n', FILE)
    assert config.for_host("box", "root@box").gpus == 8
    assert config.for_host("box").gpus == 4


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("readonly = 'yes'", 1, "true or false"),
        ("\n\nidentity = 3", 3, "path of a private key"),
        ("[hosts.a]\ngpus = 0", 2, "1 to 64"),
        ("[hosts.a]\ngpus = true", 2, "1 to 64"),
        ("[intervals]\ngpus = 0.01", 2, "0.25 to 3600"),
        ("[intervals]\ngpus = nan", 2, "0.25 to 3600"),
        ("[intervals]\n\ngpu = 1", 3, "did you mean 'gpus'?"),
        ("read_only = true", 1, "did you mean 'readonly'?"),
        ("# first\nzzz = 1", 2, "known here: "),
        ("[hosts.a]\nintervals = 3", 2, "should be a table"),
        ("hosts = 3", 1, "should be a table"),
        ("[keys]\nhelp = 1", 2, "a key such as"),
        ("gpus = 8", 1, "unknown setting 'gpus'"),
        ("[hosts.a]\nintervals = { gpus = 'x' }", 2, "seconds"),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_left_out(text: str, line: int, words: str) -> None:
    (notice,) = notices(text + ("\n[hosts.right]\ngpus = 2\n" if "hosts = 3" not in text else ""))
    assert notice.startswith(f"{FILE}:{line}: ")
    assert words in notice
    assert " - " in notice
    rest = parse_config(text + "\n[hosts.right]\ngpus = 2\n", FILE) if "hosts = 3" not in text else None
    assert rest is None or rest.for_host("right").gpus == 2


def test_a_file_that_is_no_toml_says_where() -> None:
    (notice,) = notices("readonly = true\nkeys = {\n")
    assert notice.startswith(f"{FILE}:2: is not TOML: ")
    (notice,) = notices("readonly == true\n")
    assert notice.startswith(f"{FILE}:1: is not TOML: ")


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    assert load_config(tmp_path / "none.toml") == Config()
    folder = tmp_path / "config.toml"
    folder.mkdir()
    (notice,) = load_config(folder).notices
    assert "cannot be read" in str(notice)
    binary = tmp_path / "b.toml"
    binary.write_bytes(b"readonly = \xff")
    (notice,) = load_config(binary).notices
    assert "UTF-8" in str(notice)


def test_the_users_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "eagletui").mkdir()
    (tmp_path / "eagletui" / "config.toml").write_text("readonly = true\n")
    assert load_config().for_host("any").readonly
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert load_config() == Config()


def test_line_of_dotted_and_quoted_keys() -> None:
    text = 'a.b = 1\n["x y"]\nk = 1\n[hosts."root@h"]\n gpus = 1\n'
    assert line_of(text, ("a", "b")) == 1
    assert line_of(text, ("x y", "k")) == 3
    assert line_of(text, ("hosts", "root@h", "gpus")) == 5
    assert line_of(text, ("nothing",)) is None
