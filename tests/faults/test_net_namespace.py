"""Half-open connections and new addresses in a network of its own: nobody is told that the packets are lost."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from eagletui.hosts.session import Session
from eagletui.hosts.ssh import connector
from tests.faults.net import Watcher, gone, say, within
from tests.faults.netns import Network, network  # noqa: F401
from tests.host.conftest import home, key, known, servers, short_path  # noqa: F401
from tests.host.sshd import Sshd

pytestmark = [pytest.mark.machine, pytest.mark.timeout(300)]


@pytest.fixture
async def watched(
    network: Network,  # noqa: F811
    servers: Callable[[], Sshd],  # noqa: F811
    key: Path,  # noqa: F811
    known: Path,  # noqa: F811
) -> AsyncIterator[tuple[Session, Watcher]]:
    """A session, with the timings that a user has, to an sshd in the other network."""
    sshd = servers()
    sshd.address, sshd.prefix = network.there, network.inside
    sshd.allow(Path(f"{key}.pub"))
    known.write_text(sshd.known_line())
    await sshd.start()
    watcher = Watcher()
    session = Session(connector(sshd.target), watcher.state)
    await session.open()
    await session.subscribe("host", 0.5, watcher.push)
    await watcher.more(3)
    yield session, watcher
    await session.close()


async def through_a_loss(session: Session, watcher: Watcher, network: Network, *ways: str) -> None:  # noqa: F811
    agent = session.info.agent_pid
    watcher.states[:-1] = []
    network.drop(*ways)
    begun = time.monotonic()
    stale = await watcher.becomes("stale") - begun
    reconnecting = await watcher.becomes("reconnecting") - begun
    ended = time.monotonic() - begun + await gone(agent, 90)
    network.heal()
    begun = time.monotonic()
    back = await watcher.more(1) - begun
    say(
        f"{' and '.join(ways)} lost: stale after {stale:.1f} s (5 s), reconnecting after {reconnecting:.1f} s (20 s), "
        f"agent gone after {ended:.1f} s (60 s), data again {back:.2f} s after the network (3 s)"
    )
    assert watcher.names[:3] == ["online", "stale", "reconnecting"]
    assert stale < within(5)
    assert reconnecting < within(20)
    assert ended < 90
    assert back < within(3)


@pytest.mark.fault(3, how="packets dropped both ways by nft in a network namespace")
async def test_nothing_passes_any_more(watched: tuple[Session, Watcher], network: Network) -> None:  # noqa: F811
    await through_a_loss(*watched, network, "input", "output")


@pytest.mark.fault(4, how="packets dropped one way by nft in a network namespace")
@pytest.mark.parametrize("way", ["input", "output"])
async def test_one_way_is_lost(watched: tuple[Session, Watcher], network: Network, way: str) -> None:  # noqa: F811
    await through_a_loss(*watched, network, way)


@pytest.mark.fault(7, how="this side of a pair of virtual cards gets another address")
async def test_a_new_address(watched: tuple[Session, Watcher], network: Network) -> None:  # noqa: F811
    session, watcher = watched
    agent = session.info.agent_pid
    network.move()
    begun = time.monotonic()
    await watcher.becomes("reconnecting")
    back = await watcher.more(1) - begun
    assert session.info.agent_pid != agent
    old = await gone(agent, 90)
    say(f"new address: data again after {back:.1f} s (20 s + 3 s), the old agent {old:.1f} s later gone")
    assert back < within(23)
