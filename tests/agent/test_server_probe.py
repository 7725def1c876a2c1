"""The supervisor's questions to its server: none before they can be answered, so a load's log has no lines of our making."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eagletui.agent import server_probe
from eagletui.agent.fetch import Answer
from eagletui.agent.server_probe import Owner, Rules, ServerProbe


class Turns:
    """A loop whose timers the test lets go off, one after the other."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def now(self) -> float:
        return 0.0

    def call_later(self, _seconds: float, what: Callable[[], None]) -> None:
        self.due.append(what)

    def turn(self, number: int = 1) -> None:
        for _ in range(number):
            due, self.due = self.due, []
            for what in due:
                what()


class Quiet(Owner):
    def __init__(self) -> None:
        self.told: list[Any] = []

    def server_ready(self) -> None:
        self.told.append("ready")

    def server_model(self, name: str, max_model_len: int | None) -> None:
        self.told.append(name)

    def server_version(self, version: str) -> None:
        self.told.append("version " + version)

    def server_smoke(self, result: dict[str, Any]) -> None:
        self.told.append(result)

    def server_metrics(self, text: bytes, boot: float, wall: float) -> None:
        self.told.append("metrics")

    def server_no_metrics(self, why: str) -> None:
        self.told.append(why)

    def server_silent(self, why: str | None) -> None:
        self.told.append(why)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Callable[[Answer], None]]]:
    found: list[tuple[str, Callable[[Answer], None]]] = []
    monkeypatch.setattr(server_probe, "Fetch", lambda _loop, _port, path, done, *_more: found.append((path, done)))
    return found


def test_nothing_is_asked_while_nobody_listens(asked: list[tuple[str, Any]]) -> None:
    turns, listening = Turns(), [False]
    ServerProbe(turns, Rules(1), Quiet(), lambda: listening[0]).start()  # type: ignore[arg-type]
    turns.turn(20)
    assert asked == []
    listening[0] = True
    turns.turn()
    assert [path for path, _ in asked] == ["/health"]


def test_nothing_is_asked_before_the_log_says_ready_where_the_port_opens_early(asked: list[tuple[str, Any]]) -> None:
    turns = Turns()
    probe = ServerProbe(turns, Rules(1, after_log=True), Quiet(), lambda: True)  # type: ignore[arg-type]
    probe.start()
    turns.turn(20)
    assert asked == []
    probe.log_says_ready()
    turns.turn()
    assert [path for path, _ in asked] == ["/health"]


def test_a_server_with_a_key_is_asked_for_no_prompt_and_its_metrics_are_told_as_missing(asked: list[tuple[str, Any]]) -> None:
    turns, owner = Turns(), Quiet()
    ServerProbe(turns, Rules(1), owner, lambda: True).start()  # type: ignore[arg-type]
    turns.turn()
    for _ in range(3):
        asked[-1][1](answer(401))
    assert [path for path, _ in asked] == ["/health", "/v1/models", "/metrics"]
    assert owner.told[:2] == ["ready", {"problem": "key needed"}]
    assert owner.told[2] == "no numbers: /metrics wants a key, and none is known here (status 401)"


def test_the_version_is_asked_by_its_old_name_where_the_new_one_is_not_known(asked: list[tuple[str, Any]]) -> None:
    turns, owner = Turns(), Quiet()
    rules = Rules(1, version="/server_info", smoke=False)
    ServerProbe(turns, rules, owner, lambda: True).start()  # type: ignore[arg-type]
    turns.turn()
    for body in (b"", b'{"data": [{"id": "m"}]}', None, b'{"version": "0.5.2"}'):
        asked[-1][1](answer(404) if body is None else answer(200, body))
    assert [path for path, _ in asked] == ["/health", "/v1/models", "/server_info", "/get_server_info", "/metrics"]
    assert owner.told == ["ready", "m", "version 0.5.2"]


@pytest.mark.parametrize("said", [(500, b""), (200, b"[]"), (200, b'{"version": 5}')])
def test_a_version_that_is_not_told_stops_nothing(said: tuple[int, bytes], asked: list[tuple[str, Any]]) -> None:
    turns, owner = Turns(), Quiet()
    ServerProbe(turns, Rules(1, version="/version", smoke=False), owner, lambda: True).start()  # type: ignore[arg-type]
    turns.turn()
    for one in ((200, b""), (200, b"{}"), said):
        asked[-1][1](answer(*one))
    assert [path for path, _ in asked][-2:] == ["/version", "/metrics"]
    assert owner.told == ["ready"]


def answer(status: int, body: bytes = b"") -> Answer:
    return Answer(status, {}, body)
