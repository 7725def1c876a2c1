"""~/.ssh/config as we read it: what is followed, what is not, and how a mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagletui.hosts.base import HostError
from eagletui.hosts.ssh_config import NO_EFFECT, HostConfig, aliases, default_path, resolve
from eagletui.hosts.target import Target, parse_target


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USER", "me")
    monkeypatch.setenv("LOGNAME", "me")
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def read(home: Path, text: str, target: str = "gpu") -> HostConfig:
    path = home / ".ssh" / "config"
    path.write_text(text)
    return resolve(parse_target(target), str(path))


def test_without_a_file(home: Path) -> None:
    assert default_path() is None
    config = resolve(Target("gpu"), None)
    assert (config.host, config.port, config.user) == ("gpu", 22, "me")
    assert config.user_files == (f"{home}/.ssh/known_hosts", f"{home}/.ssh/known_hosts2")
    assert "/etc/ssh/ssh_known_hosts" in config.global_files


def test_an_alias_with_everything(home: Path) -> None:
    config = read(
        home,
        """
        Host gpu
          HostName gpu-1.example.org
          User root
          Port 2222
          IdentityFile ~/.ssh/a
          IdentityFile %d/.ssh/b
          IdentitiesOnly yes
          IdentityAgent ~/agent
          HostKeyAlias the-gpu
          UserKnownHostsFile ~/.ssh/kh_%k
          HashKnownHosts yes
          AddressFamily inet6
          Ciphers aes256-gcm@openssh.com
          PasswordAuthentication no
        Host *
          User nobody
          Port 1
        """,
    )
    assert (config.alias, config.host, config.port, config.user) == ("gpu", "gpu-1.example.org", 2222, "root")
    assert config.identities == (f"{home}/.ssh/a", f"{home}/.ssh/b")
    assert config.identities_only
    assert config.identity_agent == f"{home}/agent"
    assert (config.key_name, config.key_port) == ("the-gpu", 22)
    assert config.user_files == (f"{home}/.ssh/kh_the-gpu",)
    assert config.hash_known_hosts
    assert config.options == {"encryption_algs": "aes256-gcm@openssh.com", "password_auth": False}
    assert config.notes == ()


def test_the_command_line_goes_before_the_file(home: Path) -> None:
    config = read(home, "Host *\n User nobody\n Port 1\n", "root@gpu:99")
    assert (config.user, config.port) == ("root", 99)


def test_match_and_include(home: Path) -> None:
    (home / ".ssh" / "more").write_text("Match host gpu user root\n  Port 2201\n")
    config = read(
        home, "Include more\nMatch originalhost gpu exec true\n  HostKeyAlias x\nMatch exec false\n Port 7\n", "root@gpu"
    )
    assert config.port == 2201
    assert config.host_key_alias == "x"


def test_jump_hosts_and_proxy_commands(home: Path) -> None:
    config = read(home, "ProxyJump root@a:23,b\n")
    assert config.jumps == (Target("a", "root", 23), Target("b"))
    assert read(home, "ProxyCommand nc -X 5 %h %p\n").proxy_command == "nc -X 5 gpu 22"
    assert read(home, "ProxyJump none\nProxyCommand nc %h %p\n").jumps == ()
    first = read(home, "ProxyCommand nc %h %p\nProxyJump a\n")
    assert (first.jumps, first.proxy_command) == ((), "nc gpu 22")
    second = read(home, "ProxyJump a\nProxyCommand nc %h %p\n")
    assert (second.jumps, second.proxy_command) == ((Target("a"),), None)


@pytest.mark.parametrize("value", ["/dev/null", "none", "/dev/null none"])
def test_user_known_hosts_file_null_still_checks(home: Path, value: str) -> None:
    config = read(home, f"Host gpu\n  UserKnownHostsFile {value}\n")
    assert config.user_files[0] == f"{home}/.ssh/known_hosts"
    (note,) = config.notes
    assert (note.option, note.line) == ("UserKnownHostsFile", 2)
    assert read(home, "GlobalKnownHostsFile none\n").global_files == ()


@pytest.mark.fault(39, how="ssh_config with options that are not followed")
def test_what_has_no_effect_is_told_with_its_line_only_where_it_applies(home: Path) -> None:
    config = read(
        home,
        "Host gpu\n  ControlMaster auto\n  StrictHostKeyChecking no\nHost other\n  ForwardAgent yes\n"
        "Host *\n  KnownHostsCommand /bin/x %H\n",
    )
    assert [(note.option, note.line) for note in config.notes] == [
        ("ControlMaster", 2),
        ("StrictHostKeyChecking", 3),
        ("KnownHostsCommand", 7),
    ]
    assert str(config.notes[1]).startswith(f"{home}/.ssh/config:3: StrictHostKeyChecking no has no effect: ")


@pytest.mark.parametrize("option", sorted(NO_EFFECT))
def test_every_option_without_effect_is_recognised(home: Path, option: str) -> None:
    assert [note.option for note in read(home, f"{option} yes\n").notes] == [option]


@pytest.mark.fault(39, how="ssh_config with unknown Match, Include in a circle, bad values")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Port many\n", "config line 1: Invalid Port integer value"),
        ("\n\nHostName\n", "config line 3: Missing Hostname value"),
        ("User 'open\n", "config line 1: No closing quotation"),
        ("Match sessiontype shell\n  Port 7\n", "config line 1"),
        ("Include config\n", "in a circle"),
        ("HostName -oProxyCommand=x\n", "may not begin with '-'"),
        ("ProxyJump -J@x\n", "may not begin with '-'"),
    ],
)
def test_mistakes_are_told_with_their_line(home: Path, text: str, says: str) -> None:
    with pytest.raises(HostError) as caught:
        read(home, text)
    assert caught.value.kind == "config"
    assert says in caught.value.why


@pytest.mark.fault(39, how="ssh_config with unknown Match, Include in a circle, bad values")
def test_a_file_that_is_no_text(home: Path) -> None:
    path = home / ".ssh" / "config"
    path.write_bytes(b"Host \xff\n")
    with pytest.raises(HostError, match="not text"):
        resolve(Target("gpu"), str(path))


def test_identity_agent_forms(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_AGENT", "/run/agent")
    assert read(home, "").identity_agent is None
    assert read(home, "IdentityAgent SSH_AUTH_SOCK\n").identity_agent is None
    assert read(home, "IdentityAgent none\n").identity_agent == ""
    assert read(home, "IdentityAgent $MY_AGENT\n").identity_agent == "/run/agent"
    assert read(home, "IdentityAgent ${MY_AGENT}\n").identity_agent == "/run/agent"


def test_aliases_for_completion(home: Path) -> None:
    path = home / ".ssh" / "config"
    path.write_text("Host gpu gpu-2\nHost *.org !x\nhost=last\nMatch host y\n")
    assert aliases(str(path)) == ("gpu", "gpu-2", "last")
    assert aliases(str(home / "none")) == ()
