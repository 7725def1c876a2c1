"""What a person types to name a host: ``[USER@]HOST[:PORT]``, or ``local``."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from eagletui.hosts.base import HostError

# Names reach a shell through ProxyCommand's %h and %r: the same characters that OpenSSH refuses are refused here.
_FORBIDDEN = re.compile(r"[\s\x00-\x1f\x7f'\"`$\\;&<>|(){}*?!#/,]")


class Target(NamedTuple):
    """A host to connect to. ``user`` and ``port`` are None when not given: then ~/.ssh/config or the defaults decide."""

    host: str
    user: str | None = None
    port: int | None = None
    local: bool = False

    def __str__(self) -> str:
        if self.local:
            return "local"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (f"{self.user}@" if self.user else "") + host + (f":{self.port}" if self.port else "")


def _bad(text: str, why: str) -> HostError:
    return HostError(
        "host name", f"{text!r}: {why}", "write [USER@]HOST[:PORT], an alias of ~/.ssh/config, or local", kind="config"
    )


def parse_target(text: str) -> Target:
    """Read ``[USER@]HOST[:PORT]``; an IPv6 address with a port stands in brackets. Raises `HostError` of kind config."""
    if text == "local":
        return Target("local", local=True)
    user, at, rest = text.rpartition("@")
    if at and not user:
        raise _bad(text, "the user before @ is empty")
    host, port = _split_port(text, rest)
    for what, value in (("user", user), ("host", host)):
        if value.startswith("-"):
            raise _bad(text, f"a {what} may not begin with '-'")
        found = _FORBIDDEN.search(value)
        if found:
            raise _bad(text, f"{found.group()!r} may not stand in a {what}")
    if not host:
        raise _bad(text, "the host is empty")
    return Target(host, user or None, port)


def _split_port(text: str, rest: str) -> tuple[str, int | None]:
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket:
            raise _bad(text, "the closing ] is missing")
        if tail and not tail.startswith(":"):
            raise _bad(text, f"{tail!r} after ] is not a port")
        if not _is_ipv6(host):
            raise _bad(text, f"{host!r} is no IPv6 address")
        return host, _port(text, tail[1:]) if tail else None
    if rest.count(":") > 1:
        if _is_ipv6(rest):
            return rest, None
        raise _bad(text, "more than one ':'; an IPv6 address with a port is written [ADDRESS]:PORT")
    host, colon, port = rest.partition(":")
    return host, _port(text, port) if colon else None


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _port(text: str, port: str) -> int:
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise _bad(text, f"{port!r} is no port (1 to 65535)")
    return int(port)
