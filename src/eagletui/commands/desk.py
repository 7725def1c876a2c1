"""The desk: one person at one host, and what is done with the connection and the alerts.

A `Desk` is where one person sits: one host, its session, its store, the watch over it, and what the configuration says of it.
Functions that change something on the host refuse a read-only desk with a `HostError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from eagletui.commands.good import remember
from eagletui.config import Config, HostSettings, load_config
from eagletui.connection import Connection
from eagletui.hosts.base import HostError, Prompter
from eagletui.hosts.prompts import Handover
from eagletui.hosts.session import Connect, Session
from eagletui.hosts.target import Target
from eagletui.profiles import Profile
from eagletui.records import Alert, JobState
from eagletui.store import Store
from eagletui.watch.core import STREAMS, Intervals, Watch


@dataclass
class Desk:
    """One person at one host. ``readonly`` refuses everything that would change something on the host."""

    target: Target
    session: Session
    store: Store
    watch: Watch
    config: Config = field(default_factory=Config)
    settings: HostSettings = field(default_factory=HostSettings)
    readonly: bool = False
    launched: dict[str, Profile] = field(default_factory=dict)
    """The profiles of the jobs that were launched from this desk, by job id."""
    asks: Handover = field(default_factory=lambda: Handover(None), repr=False)
    """Who is asked what a connection needs to know."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, repr=False)

    @property
    def operator(self) -> str:
        """Who launches and kills from here, as the host's records name them."""
        return getpass.getuser()

    @property
    def place(self) -> str:
        """The host's name for profiles: its own ones, and what last worked there."""
        return self.target.host

    def on_ready(self, job: JobState) -> None:
        """A server has become ready: its profile is one that works here."""
        task = asyncio.ensure_future(self._remember(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _remember(self, job: JobState) -> None:
        try:
            await asyncio.to_thread(remember, self.place, job, self.launched.get(job.id))
        except OSError as error:
            warn(self.store, "profiles:last-good", f"what works could not be noted: {error.filename}: {error.strerror}")

    async def close(self) -> None:
        """End the watch and the connection, within about a second. Jobs on the host go on."""
        with contextlib.suppress(TimeoutError):  # the link hangs: what is not ended in good order ends with it
            async with asyncio.timeout(1.0):
                await asyncio.gather(*self._tasks)
                await self.watch.stop()
        await self.session.close()


def settings_for(config: Config, target: Target, given: Mapping[str, Any]) -> HostSettings:
    """What holds for ``target``: the command line's ``given`` before the host's own settings, these before the global ones."""
    names = (target.host, str(target._replace(port=None)), str(target))
    return replace(config.for_host(*dict.fromkeys(names)), **given)


def connector(target: Target, settings: HostSettings, prompter: Prompter | None, notice: Callable[[str], None]) -> Connect:
    """What connects to ``target``, as often as it is called; ``notice`` is told what a person should know."""
    if target.local:
        from eagletui.hosts.local import connect_local

        return partial(connect_local, readonly=settings.readonly)
    from eagletui.hosts import ssh

    return ssh.connector(
        target,
        prompter,
        strict=settings.strict,
        config=settings.ssh_config,
        identity=settings.identity,
        notice=notice,
        readonly=settings.readonly,
    )


async def open_desk(
    target: Target,
    prompter: Prompter | None,
    given: Mapping[str, Any],
    streams: tuple[str, ...] = tuple(STREAMS),
    *,
    patience: bool = True,
) -> Desk:
    """Connect to ``target``, watch its ``streams``, and sit down. Raises `HostError` when the first attempt fails.

    ``given`` is what the command line says of the host's settings. Complaints about the configuration, and what connecting
    has to tell, become alerts. ``patience``: see `Watch`.
    """
    config = await asyncio.to_thread(load_config)
    settings = settings_for(config, target, given)
    store = Store()
    for notice in config.notices:
        warn(store, f"config:{notice.line}:{notice.what}", f"{notice.file.name}:{notice.line or 1}: {notice.what}", notice.remedy)

    def on_state(state: Connection) -> None:
        desk.watch.on_state(state, session.info if state.state == "online" else store.info)

    asks = Handover(prompter)
    session = Session(
        connector(target, settings, asks if prompter is not None else None, lambda line: warn(store, f"ssh:{line}", line)),
        on_state,
        target=str(target),
        transport="local" if target.local else "ssh",
    )
    store.connection = session.state
    intervals = Intervals()._replace(**settings.intervals)
    watch = Watch(session, store, intervals=intervals, expected_cards=settings.gpus, patience=patience)
    desk = Desk(target, session, store, watch, config, settings, settings.readonly, asks=asks)
    watch.on_ready = desk.on_ready
    # subscribed before the connection is there: the subscriptions then travel with the agent's own modules
    starting = asyncio.create_task(watch.start(streams))
    try:
        await session.open()
    finally:
        await starting  # ends at once: the session is either online or closed now
    return desk


def warn(store: Store, key: str, text: str, remedy: str | None = None) -> None:
    """Raise an alert about something on this side."""
    store.raise_alert(Alert(key, "warn", text, time.time(), "eagletui", remedy))


def retry(desk: Desk) -> None:
    """Try to connect again at once: after a person has mended what was in the way, or instead of waiting longer."""
    desk.session.retry_now()


def ask_with(desk: Desk, prompter: Prompter | None) -> None:
    """From here on ``prompter`` is asked what a connection needs to know; None: nobody can be asked any more."""
    desk.asks.hand_to(prompter)


def acknowledge(desk: Desk, keys: Iterable[str] | None = None) -> list[Alert]:
    """Acknowledge these alerts, all of them when None; returns those that were not acknowledged before."""
    wanted = list(desk.store.alerts) if keys is None else [key for key in keys if key in desk.store.alerts]
    fresh = [desk.store.alerts[key] for key in wanted if not desk.store.alerts[key].acknowledged]
    if fresh:
        desk.store.acknowledge([alert.key for alert in fresh])
    return fresh


def may_change(desk: Desk, what: str) -> None:
    """Raises `HostError` when this desk is read-only."""
    if desk.readonly:
        raise HostError(
            what, "this session is read-only", "connect without --readonly (and readonly in config.toml)", kind="config"
        )
