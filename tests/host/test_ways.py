"""The way to the host: aliases, jump hosts, proxy commands, and every way in which it fails."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from eagletui.hosts.base import HostError
from eagletui.hosts.ssh import open_ssh
from eagletui.hosts.ssh_connection import Limits
from eagletui.hosts.target import Target, parse_target
from tests.host.proxy import TcpProxy
from tests.host.sshd import Person, Sshd, free_port

SHORT = Limits(tcp=1.0, greeting=0.5, login=1.0)


async def fails(target: Target | str, person: Person | None = None, **options: object) -> HostError:
    parsed = parse_target(target) if isinstance(target, str) else target
    with pytest.raises(HostError) as caught:
        await open_ssh(parsed, "cat", person, **options)  # type: ignore[arg-type]
    return caught.value


async def works(target: str, person: Person | None = None, **options: object) -> None:
    transport = await open_ssh(parse_target(target), "cat", person, **options)  # type: ignore[arg-type]
    transport.write(b"x")
    assert await transport.read() == b"x"
    await transport.close()


@pytest.fixture
async def listener() -> AsyncIterator[Callable[..., object]]:
    """Servers that are no SSH servers: each says ``greeting`` and answers every line with ``answer``."""
    made: list[asyncio.Server] = []
    held: list[asyncio.StreamWriter] = []

    async def start(greeting: bytes = b"", answer: bytes = b"", ends: bool = False) -> int:
        async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            held.append(writer)
            writer.write(greeting)
            if answer:
                await reader.readline()
                writer.write(answer)
            if ends:
                await writer.drain()
                writer.close()

        server = await asyncio.start_server(client, "127.0.0.1", 0)
        made.append(server)
        return int(server.sockets[0].getsockname()[1])

    yield start
    for server in made:
        server.close()
    for writer in held:
        writer.close()


# ------------------------------------------------------------------------------------------------------ failures


async def test_a_name_that_does_not_exist() -> None:
    error = await fails("no-such-host.invalid")
    assert (error.kind, error.step) == ("name", "name")
    assert "no-such-host.invalid" in error.why


async def test_connection_refused() -> None:
    port = free_port()
    error = await fails(f"127.0.0.1:{port}")
    assert (error.kind, error.retry) == ("refused", True)
    assert str(port) in error.why


async def test_no_route() -> None:
    # a broadcast address has no route for TCP
    error = await fails("255.255.255.255")
    assert (error.kind, error.retry) == ("route", True)


async def test_tcp_timeout() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)  # a queue of one that nobody empties: further connections are not answered
        port = full.getsockname()[1]
        with socket.socket() as first, socket.socket() as second:
            for sock in (first, second):
                sock.setblocking(False)
                sock.connect_ex(("127.0.0.1", port))
            error = await fails(f"127.0.0.1:{port}", limits=SHORT)
    assert (error.kind, error.step, error.retry) == ("timeout", "TCP", True)


async def test_a_silent_server(listener: Callable[..., object]) -> None:
    port = await listener()  # type: ignore[misc]
    error = await fails(f"127.0.0.1:{port}", limits=SHORT)
    assert (error.kind, error.step) == ("timeout", "banner")


async def test_a_server_that_stops_in_the_key_exchange(listener: Callable[..., object]) -> None:
    port = await listener(b"SSH-2.0-Silence\r\n")  # type: ignore[misc]
    error = await fails(f"127.0.0.1:{port}", limits=SHORT)
    assert (error.kind, error.step) == ("timeout", "key exchange")


async def test_not_an_ssh_server(listener: Callable[..., object]) -> None:
    port = await listener(answer=b"HTTP/1.1 400 Bad Request\r\n\r\n", ends=True)  # type: ignore[misc]
    error = await fails(f"127.0.0.1:{port}", limits=SHORT)
    assert error.kind == "protocol"
    assert "not an SSH server" in error.why
    assert "HTTP/1.1 400" in error.why


async def test_a_server_that_drops_the_connection_at_once(listener: Callable[..., object]) -> None:
    port = await listener(ends=True)  # type: ignore[misc]
    error = await fails(f"127.0.0.1:{port}", limits=SHORT)
    assert (error.kind, error.retry) == ("closed", True)
    assert "MaxStartups" in error.remedy


@pytest.mark.fault(5, how="a proxy that cuts in the key exchange")
async def test_a_cut_in_the_key_exchange(server: Sshd, known: Path, proxies: Callable[..., TcpProxy]) -> None:
    proxy = await proxies(server.port).start()
    proxy.cut_after(200)
    error = await fails(f"root@127.0.0.1:{proxy.port}")
    assert error.retry
    assert error.kind == "closed"


async def test_no_common_algorithm(servers: Callable[[], Sshd], home: Path) -> None:
    sshd = await servers().start("Ciphers aes256-ctr")
    (home / ".ssh" / "config").write_text("Ciphers aes128-ctr\n")
    error = await fails(sshd.target)
    assert (error.kind, error.step) == ("protocol", "key exchange")


@pytest.mark.fault(39, how="ssh_config files with mistakes")
async def test_a_bad_cipher_in_the_config(server: Sshd, home: Path) -> None:
    (home / ".ssh" / "config").write_text("Ciphers rot13\n")
    error = await fails(server.target)
    assert error.kind == "config"
    assert "rot13" in error.why


# ------------------------------------------------------------------------------------------------------ the config


async def test_an_alias_from_an_included_file(server: Sshd, home: Path, key: Path) -> None:
    (home / ".ssh" / "conf.d").mkdir()
    (home / ".ssh" / "conf.d" / "gpu").write_text(
        f"Host gpu\n  HostName 127.0.0.1\n  Port {server.port}\n  User root\n  IdentityFile {key}\n"
    )
    (home / ".ssh" / "config").write_text(
        "Include conf.d/*\nHost *\n  ForwardAgent yes\n  RequestTTY force\n  RemoteCommand ls\n"
    )
    await works("gpu")
    error = await fails("gpu", config=False)
    assert error.kind == "name"


@pytest.mark.fault(39, how="ssh_config files with mistakes")
async def test_a_config_that_cannot_be_read(server: Sshd, home: Path) -> None:
    config = home / ".ssh" / "config"
    config.write_text("Host *\n  Port many\n")
    error = await fails(server.target.host)
    assert error.kind == "config"
    assert f"{config} line 2" in error.why
    assert "--no-ssh-config" in error.remedy
    await works(str(server.target), config=False)


async def test_host_key_alias(server: Sshd, home: Path, known: Path) -> None:
    (home / ".ssh" / "config").write_text(f"Host box\n HostName 127.0.0.1\n Port {server.port}\n HostKeyAlias the-box\n")
    known.write_text(server.known_line(name="the-box"))
    await works("root@box")


# ------------------------------------------------------------------------------------------------------ through others


async def test_a_proxy_command(server: Sshd, home: Path) -> None:
    config = home / ".ssh" / "config"
    script = home / "proxy"
    script.write_text(
        "#!/usr/bin/env python3\nimport socket,sys,threading,os\n"
        "print('noise on stderr', file=sys.stderr, flush=True)\n"
        "s=socket.create_connection((sys.argv[1],int(sys.argv[2])))\n"
        "def up():\n while d:=os.read(0,65536): s.sendall(d)\n s.shutdown(1)\n"
        "threading.Thread(target=up,daemon=True).start()\n"
        "while d:=s.recv(65536): os.write(1,d)\n"
    )
    script.chmod(0o755)
    config.write_text(f"ProxyCommand {script} %h %p\n")
    await works(str(server.target))
    config.write_text("ProxyCommand sh -c 'echo no way to %h >&2; exit 1'\n")
    error = await fails(server.target)
    assert (error.kind, error.retry) == ("route", True)
    assert "no way to 127.0.0.1" in error.why


@pytest.mark.fault(40, how="two sshd in a row, each with known, unknown and changed keys")
async def test_a_jump_host_is_judged_like_any_other(servers: Callable[[], Sshd], home: Path, key: Path, known: Path) -> None:
    jump, last = servers(), servers()
    for sshd in (jump, last):
        sshd.allow(Path(f"{key}.pub"))
        await sshd.start()
    (home / ".ssh" / "config").write_text(
        f"Host last\n HostName 127.0.0.1\n Port {last.port}\n User root\n ProxyJump hop\n"
        f"Host hop\n HostName 127.0.0.1\n Port {jump.port}\n User root\n"
    )
    error = await fails("last")
    assert error.kind == "key-unknown"
    assert error.step.startswith("jump host hop")
    assert last.log == [line for line in last.log if "Connection from" not in line]
    person = Person()
    await works("last", person)
    assert [host for host, *_ in person.keys] == [f"[127.0.0.1]:{jump.port}", f"[127.0.0.1]:{last.port}"]
    assert person.keys[1][1] == "through 127.0.0.1"
    assert known.read_text() == jump.known_line() + last.known_line()
    await works("last")
    known.write_text(jump.known_line() + last.known_line(marker="@revoked "))
    assert (await fails("last")).kind == "key-revoked"


@pytest.mark.fault(40, how="a jump host that reaches nothing")
async def test_a_jump_host_that_does_not_reach_further(server: Sshd, home: Path) -> None:
    config = home / ".ssh" / "config"
    config.write_text(f"Host last\n HostName 127.0.0.1\n Port {free_port()}\n ProxyJump root@127.0.0.1:{server.port}\n")
    error = await fails("last")
    assert (error.kind, error.step, error.retry) == ("route", "jump host", True)


@pytest.mark.fault(40, how="jump hosts in a circle")
async def test_jump_hosts_in_a_circle(home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host a\n ProxyJump b\nHost b\n ProxyJump a\n")
    error = await fails("a")
    assert error.kind == "config"
    assert "circle" in error.why
