"""How the link to the host is: the one record that the session makes and the store keeps."""

from __future__ import annotations

from typing import NamedTuple


class Connection(NamedTuple):
    """``state``: connecting, online, stale, reconnecting, blocked, closed.

    ``rtt`` in seconds; ``since`` and ``last_frame`` by this machine's monotonic clock; ``step``/``why``/``remedy`` say
    what went wrong when it is not online, and ``kind`` is that of the `HostError`; ``next_try`` (monotonic) when the next
    attempt is due. ``rebooted``: the host was, since the connection before. ``limited`` says why only part of the host can be
    watched and nothing launched (it has no usable python3), with ``limited_remedy``; empty when all works.
    """

    state: str = "connecting"
    target: str = ""
    transport: str = ""
    rtt: float | None = None
    since: float = 0.0
    last_frame: float | None = None
    attempts: int = 0
    next_try: float | None = None
    step: str = ""
    why: str = ""
    remedy: str = ""
    received: int = 0
    sent: int = 0
    kind: str = ""
    rebooted: bool = False
    limited: str = ""
    limited_remedy: str = ""
