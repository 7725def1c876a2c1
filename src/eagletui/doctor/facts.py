"""Gathers what the checks of a host judge: few requests, all at once, each allowed to fail by itself."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from eagletui.agent.documents import board_from_doc, host_from_doc
from eagletui.hosts.base import Chunk, HostError, Listener, Push
from eagletui.records import GpuBoard, HostInfo, HostSample

T = TypeVar("T")
SMI = ("/usr/bin/nvidia-smi", "/usr/local/bin/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi")
TEXTS = {
    "driver": "/proc/driver/nvidia/version",
    "mounts": "/proc/self/mounts",
    "limits": "/proc/self/limits",
    "cgroup": "/proc/self/cgroup",
    "logind": "/etc/systemd/logind.conf",
}
DROP_INS = ("/usr/lib/systemd/logind.conf.d", "/run/systemd/logind.conf.d", "/etc/systemd/logind.conf.d")
GPU_PATIENCE = 10.0
SECOND = 3.0
"""Seconds to wait for a second sample of the cards: their memory errors come with it."""
_ANSWERS = ("agent", "absent", "denied", "replaced")
"""Kinds of `HostError` with which the host says no; all others are failures of the connection."""


class Asker(Protocol):
    """The part of a session that the doctor needs."""

    info: HostInfo

    async def request(self, method: str, body: bytes = b"", /, **params: Any) -> Any: ...

    async def read(
        self, path: str, offset: int, limit: int = 65536, wait: float = 0.0, identity: tuple[int, int] | None = None
    ) -> Chunk: ...

    async def subscribe(self, stream: str, interval: float, listener: Listener, **params: Any) -> Any: ...


class HostFacts(NamedTuple):
    """``texts`` holds the files that could be read, ``stats`` what stat says of each path (None: not there).

    ``offset`` is the host's clock minus ours in seconds, ``doubt`` half the round trip in which it was measured. ``board``
    is None when no answer on the cards came in time; ``board_problem`` says why.
    """

    info: HostInfo
    offset: float
    doubt: float
    texts: Mapping[str, str]
    stats: Mapping[str, Mapping[str, Any] | None]
    board: GpuBoard | None
    sample: HostSample | None
    board_problem: str = ""


async def gather(host: Asker) -> HostFacts:
    """Ask the host for everything, in parallel. Raises `HostError` only when the connection itself fails."""
    before = time.time()
    started = time.monotonic()
    info_doc = await host.request("hello")
    trip = time.monotonic() - started
    offset = float(info_doc["wall"]) - (before + trip / 2)
    info = host.info
    paths = [*SMI, "/sys/fs/cgroup/cgroup.controllers", f"/var/lib/systemd/linger/{info.user}"]
    if info.state_dir:
        paths.append(info.state_dir)
    (texts, drop_ins), (board, board_problem), (sample, _) = await asyncio.gather(
        _all_texts(host),
        _sample(host, "gpus", board_from_doc, GPU_PATIENCE, _answers),
        _sample(host, "host", host_from_doc, 3.0),
    )
    if drop_ins:
        texts["logind"] = texts.get("logind", "") + "\n" + drop_ins
    cgroup = own_cgroup(texts.get("cgroup", ""))
    if cgroup:
        paths.append(f"/sys/fs/cgroup{cgroup}/cgroup.kill")
    stats = await host.request("stat", paths=paths)
    return HostFacts(info, offset, trip / 2, texts, dict(zip(paths, stats, strict=True)), board, sample, board_problem)


def own_cgroup(text: str) -> str | None:
    """The path in the unified hierarchy, from /proc/self/cgroup; None without one or for the root."""
    for line in text.splitlines():
        if line.startswith("0::/") and line != "0::/":
            return line[3:]
    return None


async def _texts(host: Asker, files: Mapping[str, str]) -> dict[str, str]:
    async def one(path: str) -> str | None:
        try:
            return (await host.read(path, 0)).data.decode("utf-8", "replace")
        except HostError as error:
            if error.kind not in _ANSWERS:
                raise
            return None  # not there, or not ours to read: the checks say what that means

    found = await asyncio.gather(*(one(path) for path in files.values()))
    return {name: text for name, text in zip(files, found, strict=True) if text is not None}


async def _all_texts(host: Asker) -> tuple[dict[str, str], str]:
    texts, drop_ins = await asyncio.gather(_texts(host, TEXTS), _drop_ins(host))
    return texts, drop_ins


async def _drop_ins(host: Asker) -> str:
    """The texts of logind's drop-in files, in the order in which they count."""
    paths: list[str] = []
    for folder in DROP_INS:
        try:
            answer = await host.request("list", path=folder, limit=100)
        except HostError as error:
            if error.kind not in _ANSWERS:
                raise
            continue  # no such folder: no drop-ins there
        paths += sorted(f"{folder}/{entry['name']}" for entry in answer["entries"] if entry["name"].endswith(".conf"))
    return "\n".join((await _texts(host, {path: path for path in paths})).values())


def _answers(board: GpuBoard | None) -> bool:
    return board is not None and any(card.lost is None for card in board.cards)


async def _sample(
    host: Asker, stream: str, read: Callable[..., T], patience: float, again: Callable[[T], bool] = lambda _: False
) -> tuple[T | None, str]:
    """The first document of a stream as a record, or the second where ``again`` says so of the first; or None and the reason."""
    pushes: asyncio.Queue[Push] = asyncio.Queue()
    try:
        end = await host.subscribe(stream, 0.5, pushes.put_nowait)
    except HostError as error:
        if error.kind not in _ANSWERS:
            raise
        return None, str(error)
    try:
        record = read((await asyncio.wait_for(pushes.get(), patience)).doc)
        if again(record):
            with contextlib.suppress(TimeoutError):  # it came to a halt meanwhile: the first one is what is known
                record = read((await asyncio.wait_for(pushes.get(), SECOND)).doc)
        return record, ""
    except TimeoutError:
        return None, f"no answer within {patience:.0f} s"
    except ValueError as error:
        return None, f"its answer cannot be read: {error}"
    finally:
        await end()
