"""A host without a usable python3, over a real sshd: watched with nvidia-smi and tail, and told so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from eagletui.agent.documents import board_from_doc, host_from_doc
from eagletui.connection import Connection
from eagletui.hosts.base import HostError, Push
from eagletui.hosts.plain import PlainHost
from eagletui.hosts.session import Session, Timings
from eagletui.hosts.ssh import connect_ssh, connector
from eagletui.hosts.target import Target
from eagletui.records import GpuBoard
from tests.host.plain_root import IN_ROOT, cards_printed, plain_root, smi_script, table
from tests.host.proxy import TcpProxy
from tests.host.sshd import Sshd

Without = Callable[..., Awaitable[tuple[Sshd, Path]]]
Connect = Callable[[Sshd], Awaitable[PlainHost]]
FAST = Timings(backoff=(0.05,), tick=0.05)
OLD = "Python 3.6.8"
OLD_PYTHON = f"#!/bin/sh\necho 'eagletui[92]: /usr/bin/python3: {OLD}' >&2\nexit 92\n"
MINIMAL_PYTHON = "#!/bin/sh\necho 'eagletui[93]: /usr/bin/python3: it lacks json ctypes' >&2\nexit 93\n"


class Heard:
    """Pushes of one stream."""

    def __init__(self) -> None:
        self.pushes: asyncio.Queue[Push] = asyncio.Queue()

    def __call__(self, push: Push) -> None:
        self.pushes.put_nowait(push)

    async def board(self, that: Callable[[GpuBoard], bool] = lambda board: True) -> GpuBoard:
        """The next board that is so."""
        async with asyncio.timeout(60):
            while True:
                push = await self.pushes.get()
                board = board_from_doc(push.doc, push.boot)
                if that(board):
                    return board


@pytest.fixture
async def without(servers: Callable[[], Sshd], key: Path, known: Path, tmp_path: Path) -> Callable[..., object]:
    """Start a server whose logins land in a small root."""

    async def start(*extra: str, nvidia_smi: str | None = None, python: str | None = None) -> tuple[Sshd, Path]:
        root = plain_root(tmp_path / "root", nvidia_smi, python)
        sshd = servers()
        sshd.allow(Path(f"{key}.pub"))
        known.write_text(sshd.known_line())
        return await sshd.start(*extra, shell=IN_ROOT.format(root=root)), root

    return start


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[Sshd], Awaitable[PlainHost]]]:
    """Connects with a quick pace; closes all at the end."""
    made: list[PlainHost] = []

    async def connect(sshd: Sshd) -> PlainHost:
        host = await connect_ssh(sshd.target)
        assert isinstance(host, PlainHost)
        host.pace, host.late = 0.1, 60.0
        made.append(host)
        return host

    yield connect
    for host in made:
        await host.close()


@pytest.mark.fault(
    16, how="sshd whose logins land in a root directory without python3, with one that is too old, with a partial one"
)
@pytest.mark.parametrize(
    ("python", "kind", "says"),
    [
        (None, "no-python", "no python3"),
        (OLD_PYTHON, "old-python", OLD),
        (MINIMAL_PYTHON, "minimal-python", "it lacks json ctypes"),
    ],
)
async def test_it_is_watched_all_the_same_and_launching_is_refused(
    without: Without, connect: Connect, python: str | None, kind: str, says: str
) -> None:
    sshd, root = await without(nvidia_smi=cards_printed(), python=python)
    host = await connect(sshd)
    assert says in host.limited
    assert "nothing can be launched" in host.limited
    assert host.info.boot_id == (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    assert (host.info.user, host.info.uid, host.info.os_name, host.info.nvml) == ("0", 0, "Small Linux 1", True)
    cards, machine = Heard(), Heard()
    await host.subscribe("gpus", 1.0, cards)
    await host.subscribe("host", 1.0, machine)
    board = await cards.board()
    assert (board.present, board.driver, board.problem, len(board.cards)) == (True, "570.148.08", None, 2)
    card = board.cards[1]
    assert (card.uuid, card.number, card.util, card.mem_used, card.power, card.fan) == ("GPU-1", 1, 91, 1024 << 20, 612.5, None)
    assert [(p.pid, p.mem, p.command) for p in board.cards[0].processes or ()] == [
        (4242, 1000 << 20, "/opt/venv/bin/python3, with a comma")
    ]
    assert card.processes == ()
    push = await machine.pushes.get()
    sample = host_from_doc(push.doc, push.boot)
    assert sample.mem_total
    assert sample.load1 is not None
    for what in (host.request("launch", spec={}), host.request("jobs"), host.subscribe("jobs", 1.0, machine), host.http(80, "/")):
        with pytest.raises(HostError) as caught:
            await what
        assert (caught.value.kind, caught.value.retry) == (kind, False)
        assert says in caught.value.why
        assert caught.value.remedy


@pytest.mark.fault(41, how="sshd into a root directory with neither python3 nor nvidia-smi")
async def test_without_nvidia_smi_there_are_no_cards_and_the_machine_is_watched(without: Without, connect: Connect) -> None:
    sshd, _ = await without()
    host = await connect(sshd)
    cards, machine = Heard(), Heard()
    await host.subscribe("gpus", 1.0, cards)
    await host.subscribe("host", 1.0, machine)
    board = await cards.board()
    assert (board.present, board.problem, board.cards) == (False, "the host has no nvidia-smi", ())
    await machine.pushes.get()


@pytest.mark.fault(43, how="a nvidia-smi that does not answer until it is told to")
async def test_a_slow_nvidia_smi_is_told_and_never_started_twice(without: Without, connect: Connect) -> None:
    sshd, root = await without(nvidia_smi=smi_script(f"while ! test -e /go; do sleep 0.1; done\ncat <<'E'\n{table()}\nE"))
    host = await connect(sshd)
    host.late = 0.1
    cards, machine = Heard(), Heard()
    await host.subscribe("gpus", 1.0, cards)
    await host.subscribe("host", 1.0, machine)
    for _ in range(3):
        late = await cards.board()
        assert late.stale_since is not None
        assert "nvidia-smi has not answered for" in (late.problem or "")
        await machine.pushes.get()  # the machine is told meanwhile
    assert (root / "started").read_text().count("x") == 1
    (root / "go").touch()
    board = await cards.board(lambda board: board.stale_since is None)
    assert len(board.cards) == 2


@pytest.mark.fault(43, how="a nvidia-smi that prints [Unknown Error], [GPU is lost], a complaint, or nothing")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "Driver/library version mismatch"),
        ("exit 9", "status 9"),
        ("echo 'No devices were found'; exit 6", "No devices were found"),
    ],
)
async def test_a_broken_nvidia_smi_is_told_in_its_words(without: Without, connect: Connect, body: str, expected: str) -> None:
    sshd, _ = await without(nvidia_smi=smi_script(body))
    host = await connect(sshd)
    cards = Heard()
    await host.subscribe("gpus", 1.0, cards)
    board = await cards.board()
    assert board.present
    assert board.cards == ()
    assert expected in (board.problem or "")


@pytest.mark.fault(43, how="a nvidia-smi that prints [Unknown Error] for one card and [GPU is lost] for another")
async def test_one_lost_card_hides_no_other(without: Without, connect: Connect) -> None:
    first, second, third = table(3).splitlines()
    fields = second.split(", ")
    lost = ", ".join(fields[:3] + ["[GPU is lost]"] * (len(fields) - 3))
    unknown = ", ".join(third.split(", ")[:5] + ["[Unknown Error]"] * (len(fields) - 5))
    sshd, _ = await without(nvidia_smi=smi_script(f"cat <<'E'\n{first}\n{lost}\n{unknown}\nE"))
    host = await connect(sshd)
    cards = Heard()
    await host.subscribe("gpus", 1.0, cards)
    board = await cards.board()
    assert [card.lost for card in board.cards] == [None, "GPU is lost", "Unknown Error"]
    assert [card.util for card in board.cards] == [90, None, None]


async def test_files_are_read_by_offset(without: Without, connect: Connect) -> None:
    sshd, root = await without("MaxSessions 1")
    name = "a $(touch pwned) `id`; 'log'\t\\x"
    log = root / name
    content = bytes(range(256)) * 40
    log.write_bytes(content)
    host = await connect(sshd)
    whole = await host.read(f"/{name}", 0)
    assert whole.data == content
    assert (whole.size, whole.inode, whole.dev) == (len(content), log.stat().st_ino, log.stat().st_dev)
    assert (await host.read(f"/{name}", -100)).data == content[-100:]
    assert (await host.read(f"/{name}", 1000, 10)).data == content[1000:1010]
    assert (await host.read(f"/{name}", len(content))).data == b""
    beyond = await host.read(f"/{name}", len(content) + 5)
    assert (beyond.offset, beyond.size) == (len(content) + 5, len(content))
    waiting = asyncio.create_task(host.read(f"/{name}", len(content), wait=60))
    with log.open("ab") as file:
        file.write(b"more")
    assert (await waiting).data == b"more"
    assert not (root / "pwned").exists()
    for path, kind in (("/nothing", "absent"), ("/bin", "agent"), ("relative", "absent"), ("/a\nb", "absent")):
        with pytest.raises(HostError) as caught:
            await host.read(path, 0)
        assert caught.value.kind == kind
    log.rename(root / "old")
    log.write_bytes(b"new")
    with pytest.raises(HostError) as caught:
        await host.read(f"/{name}", 0, identity=(whole.dev, whole.inode))
    assert caught.value.kind == "replaced"


async def test_the_session_says_so_and_comes_back_after_a_cut(
    without: Without, known: Path, proxies: Callable[..., TcpProxy]
) -> None:
    sshd, _ = await without(nvidia_smi=cards_printed())
    proxy = await proxies(sshd.port).start()
    known.write_text(sshd.known_line(name=f"[127.0.0.1]:{proxy.port}"))
    states: list[Connection] = []
    session = Session(connector(Target("127.0.0.1", "root", proxy.port)), states.append, timings=FAST)
    cards = Heard()
    await session.open()
    try:
        assert states[-1].state == "online"
        assert "no python3" in states[-1].limited
        assert "apt-get install python3" in states[-1].limited_remedy
        await session.subscribe("gpus", 1.0, cards)
        await cards.board()
        proxy.reset()
        while "reconnecting" not in [state.state for state in states]:
            await asyncio.wait_for(cards.pushes.get(), 60)
        assert len((await cards.board()).cards) == 2
    finally:
        await session.close()
