"""The host interface: everything above it works on any host - over ssh, on this machine, or a test double.

A `Host` is one live agent on one machine. `Session` (session.py) is what the rest of the client holds: it has the same
methods, keeps the host alive, and replays subscriptions after a reconnect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from eagletui.records import HostInfo

Doc = dict[str, Any]


class HostError(Exception):
    """A failure told in one line: which ``step``, ``why``, and what to do (``remedy``). ``kind`` tells them apart.

    Kinds: name, route, refused, timeout, key-unknown, key-changed, key-revoked, auth, no-python, old-python,
    minimal-python, config, closed, protocol, agent (the agent answered with an error), absent, denied, replaced (of a file on
    the host), taken (a port or card), other. ``retry`` is True for failures of the network, which may be tried again
    without a person.
    """

    def __init__(self, step: str, why: str, remedy: str = "", *, kind: str = "other", retry: bool = False) -> None:
        super().__init__(f"{step}: {why}" + (f" - {remedy}" if remedy else ""))
        self.step, self.why, self.remedy, self.kind, self.retry = step, why, remedy, kind, retry


class Push(NamedTuple):
    """One push of a stream: the whole document after the patch. ``boot``/``wall`` are the host's clocks at the sample."""

    stream: str
    number: int
    boot: float
    wall: float
    doc: Doc
    changed: Doc


class Chunk(NamedTuple):
    """A piece of a remote file. ``offset`` is where ``data`` starts, ``size`` the file's size when it was read.

    ``floor`` is the first offset that still holds data (logs are bounded by punching holes; offsets never change).
    ``dev``/``inode`` identify the file: when they change, the path names another file than before.
    """

    data: bytes
    offset: int
    size: int
    dev: int
    inode: int
    floor: int = 0
    mtime: float | None = None


class HttpAnswer(NamedTuple):
    """The answer of a server on the host's loopback, fetched there by the agent."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class FileMark(tuple[int, int]):
    """(device, inode) of a file that is read on, and in ``before`` the last bytes that were read, up to the offset asked for.

    By those a file that was cut to nothing and written anew, beyond that offset, is told from one that grew.
    """

    before: bytes

    def __new__(cls, dev: int, inode: int, before: bytes = b"") -> FileMark:
        made = super().__new__(cls, (dev, inode))
        made.before = before
        return made


Listener = Callable[[Push], None]


class Host(Protocol):
    """What can be asked of a machine. Every method raises `HostError` and nothing else (besides cancellation)."""

    info: HostInfo

    async def request(self, method: str, body: bytes = b"", /, **params: Any) -> Any:
        """One request to the agent; the JSON result."""

    async def batch(self, calls: Sequence[tuple[str, Doc]]) -> list[Any]:
        """Several requests in one round trip: a list of results, with a `HostError` in the place of each that failed."""

    async def subscribe(self, stream: str, interval: float, listener: Listener, **params: Any) -> Callable[[], Awaitable[None]]:
        """Start a stream; ``listener`` is called on the event loop for each push. Returns the coroutine that ends it."""

    async def read(
        self, path: str, offset: int, limit: int = 65536, wait: float = 0.0, identity: tuple[int, int] | None = None
    ) -> Chunk:
        """Bytes from ``offset`` (negative: from the end), at most 64 KiB; waits up to ``wait`` s for something new."""

    async def search(self, path: str, pattern: str, start: int = 0, **params: Any) -> Doc:
        """Search a file on the host; offsets and lines of the matches, and where to go on."""

    async def http(
        self,
        port: int,
        path: str,
        method: str = "GET",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> HttpAnswer:
        """A request to 127.0.0.1:``port`` on the host, made by the agent there."""

    async def forward(self, port: int) -> Forward:
        """Open a loopback port here that leads to 127.0.0.1:``port`` on the host, for as long as it is held."""

    async def close(self) -> None:
        """End the agent and the connection; returns within a second even when the link is dead."""


class Forward(Protocol):
    """A loopback port on this machine that leads to one on the host."""

    port: int

    async def close(self) -> None: ...


class Transport(Protocol):
    """A two-way byte stream to a starting agent: the ssh channel or the local process. `link.py` speaks frames over it."""

    async def read(self) -> bytes:
        """The next bytes from the agent; empty at the end."""

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    async def close(self) -> None: ...

    async def reason(self) -> str:
        """After the end: what is known of why (stderr, exit status), in one line."""


class Prompter(Protocol):
    """Asks a person, in the terminal before the dashboard or in a dialog over it. Returns None when they decline."""

    async def secret(self, prompt: str) -> str | None: ...

    async def answer(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None: ...

    async def trust(self, host: str, address: str, key_type: str, fingerprint: str, randomart: str) -> bool: ...
