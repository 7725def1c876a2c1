"""A network of its own: a namespace behind a pair of virtual cards, in which packets can be dropped and addresses changed."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator

import pytest

_numbers = itertools.count()


def run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"


class Network:
    """``there`` is reached from ``here``; `drop` loses packets silently, `heal` passes them again."""

    def __init__(self) -> None:
        number = next(_numbers)
        self.name = f"etf-{os.getpid()}-{number}"
        self.card = f"etf{os.getpid() % 100000}-{number}"
        net = f"10.{201 + os.getpid() % 40}.{(os.getpid() // 40 + number) % 250}"
        self.here, self.later, self.there = f"{net}.1", f"{net}.9", f"{net}.2"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self.card, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "addr", "add", f"{self.here}/24", "dev", self.card)
        run("ip", "link", "set", self.card, "up")
        for words in (
            ("addr", "add", f"{self.there}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            run("ip", "-n", self.name, *words)
        self.inside = ("nsenter", f"--net=/run/netns/{self.name}")
        self._nft("add table inet fault")
        self._nft("add chain inet fault input { type filter hook input priority 0; }")
        self._nft("add chain inet fault output { type filter hook output priority 0; }")

    def _nft(self, command: str) -> None:
        run(*self.inside, "nft", command)

    def drop(self, *ways: str) -> None:
        """``input``: nothing reaches the host; ``output``: nothing comes from it."""
        for way in ways:
            self._nft(f"add rule inet fault {way} meta l4proto tcp drop")

    def heal(self) -> None:
        self._nft("flush table inet fault")

    def move(self) -> None:
        """This side loses its address and gets another one."""
        run("ip", "addr", "del", f"{self.here}/24", "dev", self.card)
        run("ip", "addr", "add", f"{self.later}/24", "dev", self.card)

    def close(self) -> None:
        run("ip", "netns", "del", self.name)


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    yield made
    made.close()
