"""What a person may type to name a host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.hosts.base import HostError
from eagletui.hosts.target import Target, parse_target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("gpu", Target("gpu")),
        ("root@gpu-1.example.org", Target("gpu-1.example.org", "root")),
        ("root@gpu:2222", Target("gpu", "root", 2222)),
        ("10.0.0.5:22", Target("10.0.0.5", None, 22)),
        ("me@corp@gpu", Target("gpu", "me@corp")),
        ("[2001:db8::1]:22", Target("2001:db8::1", None, 22)),
        ("root@[::1]", Target("::1", "root")),
        ("root@::1", Target("::1", "root")),
        ("[fe80::1%eth0]:22", Target("fe80::1%eth0", None, 22)),
        ("local", Target("local", local=True)),
        ("root@local", Target("local", "root")),
    ],
)
def test_what_is_read(text: str, target: Target) -> None:
    assert parse_target(text) == target
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the host is empty"),
        ("root@", "the host is empty"),
        ("@gpu", "user before @ is empty"),
        ("gpu:", "is no port"),
        ("gpu:0", "is no port"),
        ("gpu:65536", "is no port"),
        ("gpu:ssh", "is no port"),
        ("gpu:²²", "is no port"),
        ("a:b:22", "more than one ':'"),
        ("[gpu]:22", "is no IPv6 address"),
        ("[::1", "closing ]"),
        ("[::1]22", "is not a port"),
        ("-oProxyCommand=reboot", "may not begin with '-'"),
        ("-l@gpu", "may not begin with '-'"),
        ("root@-oProxyCommand=reboot", "may not begin with '-'"),
        ("gpu;reboot", "may not stand in a host"),
        ("$(reboot)@gpu", "may not stand in a user"),
        ("gpu reboot", "may not stand in a host"),
        ("gpu\n", "may not stand in a host"),
        ("a`b`@gpu", "may not stand in a user"),
        ("ssh://gpu", "is no port"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(HostError) as caught:
        parse_target(text)
    assert caught.value.kind == "config"
    assert why in caught.value.why
    assert "[USER@]HOST[:PORT]" in caught.value.remedy


@given(st.text(max_size=30))
def test_whatever_is_read_is_safe_for_a_shell_and_reads_back(text: str) -> None:
    try:
        target = parse_target(text)
    except HostError:
        return
    for part in (target.host, target.user or "x"):
        assert not part.startswith("-")
        assert not set(part) & set(" \t\n'\"`$\\;&<>|(){}")
    if target.user != "" and not (target.host == "local" and target.user is None and target.port is None):
        assert parse_target(str(target)) == target
