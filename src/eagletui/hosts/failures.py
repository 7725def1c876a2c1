"""Every way in which a connection fails, as one `HostError`: which step, why, what to do, and whether trying again may help."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from eagletui.hosts.base import HostError
from eagletui.hosts.known_hosts import Entry, HostKey, Verdict, removal

CHECK_FINGERPRINT = "compare it with `ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` on the host"


def of_socket(error: OSError, host: str, port: int) -> HostError:
    """A name that does not resolve, or a TCP connection that does not come about."""
    if isinstance(error, socket.gaierror):
        again = error.errno in (socket.EAI_AGAIN,)
        why = f"{host} cannot be resolved ({error.strerror})"
        return HostError("name", why, "check the spelling, the network and DNS", kind="name", retry=again)
    if error.errno == errno.ECONNREFUSED:
        why = f"nothing listens at {host} port {port}"
        return HostError("connect", why, "is sshd running there, and is the port right?", kind="refused", retry=True)
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return timeout("TCP", host, port)
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.EHOSTDOWN):
        why = f"no route to {host} ({error.strerror})"
        return HostError("connect", why, "check the network or the VPN", kind="route", retry=True)
    if error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED):
        why = f"{host} port {port} closed the connection"
        return HostError("connect", why, "a firewall or a limit of sshd may do that", kind="closed", retry=True)
    return HostError("connect", f"{host} port {port}: {error.strerror or error}", kind="other", retry=True)


def timeout(step: str, host: str, port: int) -> HostError:
    """A limit ran out; ``step`` is TCP, banner, key exchange, login or session."""
    why, remedy = {
        "TCP": (f"no answer from {host} port {port}", "check the address, the VPN and firewalls"),
        "banner": (f"{host} port {port} accepts the connection but says nothing", "is it sshd? it may be overloaded"),
        "key exchange": (
            f"{host} port {port} stops in the middle of the key exchange",
            "often a network path that drops large packets: check the MTU",
        ),
        "login": (f"{host} does not answer the login", "its login service may hang"),
        "session": (f"{host} does not answer the request for a session", "it may be overloaded"),
    }[step]
    return HostError(step, why, remedy, kind="timeout", retry=True)


def not_ssh(host: str, port: int, seen: str) -> HostError:
    said = f": {seen!r}" if seen else ""
    return HostError("banner", f"{host} port {port} is not an SSH server{said}", "check the port", kind="protocol")


def crowded(host: str, port: int, seen: str) -> HostError | None:
    """What sshd says in place of its version when it takes no more connections for now; None when it is something else."""
    words = seen.lower()
    if "maxstartups" in words:
        why = f"{host} port {port} takes no more logins at the moment: {seen!r}"
        return HostError("connect", why, "too many are under way there (MaxStartups)", kind="refused", retry=True)
    if "not allowed at this time" in words:
        why = f"{host} port {port} refuses this address for a while: {seen!r}"
        remedy = "it counted failed logins from here (PerSourcePenalties): wait some minutes, then try again"
        return HostError("connect", why, remedy, kind="refused")
    return None


def unknown_key(name: str, address: str, key: HostKey, *, asked: bool) -> HostError:
    why = f"{name} ({address}) is not known, it shows the {key.type} key {key.fingerprint}"
    if asked:
        return HostError(
            "host key", why, "it was not accepted, or there is no terminal to ask in; " + CHECK_FINGERPRINT, kind="key-unknown"
        )
    remedy = CHECK_FINGERPRINT + ", then connect once with a terminal and without --strict, or with ssh"
    return HostError("host key", why, remedy, kind="key-unknown")


def unknown_authority(name: str, key: HostKey) -> HostError:
    why = f"{name} shows a certificate by an authority that is not known, {key.fingerprint}"
    return HostError("host key", why, "add an @cert-authority line to known_hosts", kind="key-unknown")


def bad_key(verdict: Verdict, name: str, port: int, key: HostKey) -> HostError:
    """A key that is refused without a question: revoked, changed, or of another type than the known one."""
    first: Entry = verdict.entries[0]
    where = ", ".join(dict.fromkeys(e.where for e in verdict.entries))
    if verdict.kind == "revoked":
        why = f"the {key.type} key {key.fingerprint} of {name} is revoked at {where}"
        return HostError("host key", why, "do not connect; ask whoever runs the host", kind="key-revoked")
    clean = " && ".join(dict.fromkeys(removal(e.path, name, port) for e in verdict.entries))
    if verdict.kind == "other-type":
        types = ", ".join(dict.fromkeys(e.key.type for e in verdict.entries))
        why = f"{name} shows a {key.type} key, {key.fingerprint}, but only its {types} key is known ({where})"
        remedy = f"it may be another machine: {CHECK_FINGERPRINT}; if it is right: {clean}"
        return HostError("host key", why, remedy, kind="key-changed")
    why = f"THE KEY OF {name} HAS CHANGED: {key.type} {key.fingerprint}, but {first.key.fingerprint} is known ({where})"
    remedy = f"somebody may be listening, or the host was reinstalled: {CHECK_FINGERPRINT}; if it is right: {clean}"
    return HostError("host key", why, remedy, kind="key-changed")


def known_hosts_unwritable(path: str, error: OSError) -> HostError:
    return HostError("host key", f"{path} cannot be written: {error.strerror}", "mend its permissions", kind="config")


def refused_login(
    user: str, name: str, methods: Sequence[str], offered: Sequence[str], problems: Sequence[str], *, asked: bool
) -> HostError:
    """The host did not let us in. ``methods`` it takes, ``offered`` keys, ``problems`` with key files or the agent."""
    takes = ", ".join(methods) or "nothing we know"
    keys = f"keys offered: {', '.join(offered)}" if offered else "no key was offered"
    why = f"{name} does not let {user} in (it takes {takes}; {keys}" + "".join(f"; {p}" for p in problems) + ")"
    if not offered and "publickey" in methods:
        remedy = "add your key to the agent (ssh-add) or name it with IdentityFile in ~/.ssh/config"
    elif asked:
        remedy = "what was typed was not accepted"
    else:
        remedy = "check the user name, and that one of these keys stands in the host's authorized_keys"
    return HostError("login", why, remedy, kind="auth")


def unanswered(user: str, name: str) -> HostError:
    """The host ended the login while a person was asked: not tried again, or the question would come back for ever."""
    why = f"{name} ended the login of {user} before an answer came"
    return HostError("login", why, "connect again and answer sooner (LoginGraceTime in its sshd_config)", kind="auth")


def too_many_keys(user: str, name: str, offered: Sequence[str]) -> HostError:
    why = f"{name} gave up on {user} after {len(offered)} keys: {', '.join(offered)}"
    return HostError("login", why, "name the right one with IdentityFile and IdentitiesOnly yes in ~/.ssh/config", kind="auth")


def no_session(name: str, reason: str) -> HostError:
    """The login worked, but the host opens no channel for a command."""
    why = f"{name} opens no session ({reason})"
    return HostError("session", why, "MaxSessions in its sshd_config may be too low, or sessions are forbidden", kind="other")


def no_command(name: str, reason: str) -> HostError:
    return HostError("session", f"{name} runs no command for this user ({reason})", "use a user with a shell", kind="other")


def no_forwarding(name: str, port: int, reason: str) -> HostError:
    why = f"{name} forbids forwarding to its port {port} ({reason})"
    return HostError("forward", why, "allow it with AllowTcpForwarding local (or PermitOpen) in its sshd_config", kind="refused")


def nothing_listens(name: str, port: int) -> HostError:
    return HostError("forward", f"nothing listens at 127.0.0.1:{port} on {name}", kind="refused")


def jump(hop: str, host: str, port: int, error: Exception) -> HostError:
    """The jump host is reached, but it does not reach the next one."""
    why = f"the jump host {hop} cannot reach {host} port {port} ({error})"
    return HostError("jump host", why, "check the address from there, and AllowTcpForwarding on it", kind="route", retry=True)


def at_hop(hop: str, error: HostError) -> HostError:
    """The same failure, said of a jump host."""
    return HostError(f"jump host {hop}, {error.step}", error.why, error.remedy, kind=error.kind, retry=error.retry)


def of_proxy(command: str, said: str) -> HostError:
    why = f"ProxyCommand {command!r} ended" + (f": {said}" if said else "")
    return HostError("proxy command", why, "try the command by hand", kind="route", retry=True)


def algorithms(name: str, error: Exception) -> HostError:
    return HostError(
        "key exchange", f"{name} and we share no algorithm ({error})", "the host's sshd is very old", kind="protocol"
    )


def lost(step: str, name: str, reason: str) -> HostError:
    """The connection broke while it was being made."""
    return HostError(
        step, f"{name} closed the connection ({reason})", "it may limit connections (MaxStartups)", kind="closed", retry=True
    )


def turned_away(user: str, host: str, said: str) -> HostError:
    """The host took the key or the password, and then said why this account may not log in (expired, locked, no logins now)."""
    words = " ".join("".join(c if c.isprintable() else " " for c in said).split())[:300]
    return HostError("login", f"{host} turns {user} away: {words}", "its administrator can tell", kind="auth")
