"""A session that only watches: every key, command and request is either known to change nothing, or refused."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

from eagletui.actions import ACTIONS, DIALOG
from eagletui.agent import server
from eagletui.cli.parser import VERBS
from eagletui.hosts.base import HostError
from eagletui.hosts.local import connect_local
from tests.screens.conftest import Opener, app_of, dashboard, state_home  # noqa: F401 - fixtures
from tests.screens.demo import DeskDouble, board_store

SOURCE = Path(__file__).resolve().parents[2] / "src" / "eagletui"

# Whoever adds a request, a command or a key says here that it changes nothing on the host, or marks it as changing.
READS = {
    "hello", "batch", "debug", "modules", "subscribe", "unsubscribe", "provide", "read", "stat", "list", "search", "http",
    "processes", "stacks", "unit", "facts", "engine", "jobs", "job", "kill_plan", "survival",
}  # fmt: skip
VERBS_THAT_READ = {
    "connect", "status", "preflight", "jobs", "logs", "profiles", "why", "phases", "diagnose", "doctor",
}  # fmt: skip
# `lab` is of this machine only; of `bench` it is `bench run`
VERBS_THAT_CHANGE = {"launch", "kill", "remove", "leftovers", "patch", "lab", "run", "bench"}
KEYS_THAT_CHANGE = {"launch", "new_job", "kill", "relaunch", "remove", "confirm", "hurry", "form_launch"}
KEYS_THAT_READ = {
    "open", "find", "find_next", "filter", "sort", "copy", "up", "down", "page_up", "page_down", "first", "last", "show_all",
    "next_server", "previous_server", "window", "follow", "fold", "first_error", "find_previous", "facts", "wrap",
    "left", "right", "log", "probe", "why", "acknowledge", "retry", "next_list", "previous_list", "help", "palette", "theme",
    "quit", "close", "look_again", "canary", "form_preflight", "form_save", "form_save_all", "form_reset", "probe_stop",
    "bench_curve", "bench_differences", "bench_export", "bench_mark", "bench_view", "log_axis", "loss_parts", "next_chart",
    "next_run", "next_verdict", "overlay", "previous_run", "previous_verdict", "step_log", "x_axis",
}  # fmt: skip


def methods() -> set[str]:
    """Every request that an agent answers."""
    homes = {*server._HOMES.values(), server._OTHERS}
    named = {"batch", "debug", "modules", "subscribe", "unsubscribe", "provide"}
    return named.union(*(import_module(home).METHODS for home in homes))


def test_every_request_is_known_to_read_or_to_change() -> None:
    assert not READS & server.CHANGES
    assert methods() == READS | server.CHANGES, "a new request: name it in READS here, or in agent.server.CHANGES"


async def test_the_agent_itself_refuses_what_changes_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAGLETUI_STATE", str(tmp_path / "state"))
    link = await connect_local(readonly=True)
    try:
        target = tmp_path / "file"
        for method in sorted(server.CHANGES):
            params = {"path": str(target), "expect_sha": "", "mode": 0o600, "remove": ["/dev/shm/x"]}
            with pytest.raises(HostError) as caught:
                await link.request(method, b"x", **params)
            assert (caught.value.kind, caught.value.why) == ("denied", "this session is read-only"), method
            answers = await link.batch([(method, params), ("stat", {"paths": ["/"]})])
            assert isinstance(answers[0], HostError)
            assert answers[0].kind == "denied"
            assert answers[1][0]["inode"]
        await link.request("hello", readonly=False)  # what was said cannot be taken back
        with pytest.raises(HostError) as caught:
            await link.request("write", b"x", path=str(target), expect_sha="", mode=0o600)
        assert caught.value.kind == "denied"
        assert not target.exists()
        assert not (tmp_path / "state").exists()  # watching writes nothing
        assert (await link.request("leftovers"))["entries"] == []
    finally:
        await link.close()


def test_every_command_that_sends_such_a_request_looks_first() -> None:
    """A function of the commands that names a changing request asks `may_change`, or is called by one that does."""
    sends: dict[str, set[str]] = {}
    looks: set[str] = set()
    called_by: dict[str, set[str]] = {}
    for path in sorted((SOURCE / "commands").glob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                if not isinstance(node, ast.Call):
                    continue
                name = ast.unparse(node.func).rpartition(".")[2]
                called_by.setdefault(name, set()).add(function.name)
                if name == "may_change":
                    looks.add(function.name)
                first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
                listed = any(word.arg == "remove" for word in node.keywords)
                if name == "request" and first in server.CHANGES and (first != "leftovers" or listed):
                    sends.setdefault(function.name, set()).add(str(first))

    def guarded(name: str, seen: frozenset[str] = frozenset()) -> bool:
        if name in looks:
            return True
        callers = called_by.get(name, set()) - {name} - seen
        return bool(callers) and all(guarded(caller, seen | {name}) for caller in callers)

    assert sends  # the search finds something
    assert {name for name in sends if not guarded(name)} == set()


def test_every_verb_is_known_to_read_or_to_change() -> None:
    assert {verb.name for verb in VERBS} == VERBS_THAT_READ | VERBS_THAT_CHANGE, (
        "a new command: say here whether it changes the host"
    )


def test_every_key_is_known_to_read_or_to_change() -> None:
    named = {action.id for action in ACTIONS if action.screen is None}
    assert named <= KEYS_THAT_READ | KEYS_THAT_CHANGE, "a new key: say here whether it changes the host"
    for action in ACTIONS:
        assert action.writes == (action.id in KEYS_THAT_CHANGE), action.id


async def test_no_key_changes_anything_in_a_session_that_only_watches(dashboard: Opener) -> None:  # noqa: F811
    desk = DeskDouble()
    desk.readonly = True
    async with dashboard(board_store(seconds=3), desk=desk) as pilot:
        app = app_of(pilot)
        for action in ACTIONS:
            if not action.writes or action.scope == DIALOG:
                continue
            await app.show_page("jobs")
            await pilot.pause()
            assert action.id not in {live.id for live in app.live_actions()}
            await app.run_action_id(action.id)
            await pilot.press(*action.keys[:1])
            await pilot.pause()
            assert len(app.screen_stack) == 1, action.id  # no box, no form: its keys cannot be reached
        assert not [deed for deed in desk.deeds.done if deed[0] in ("launch", "kill", "hurry", "remove", "remove_job", "end_job")]
