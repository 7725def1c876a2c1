"""The gpus stream against the stand-in for NVML: healthy boards, and every way in which NVML has been seen to fail."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent.documents import board_from_doc
from eagletui.agent.patch import apply, diff
from eagletui.records import GpuBoard
from tests.agent.fakenvml import FakeNvml, Running, build, pythons

NVML_FAULTS = pytest.mark.fault(
    42, how="a stand-in for NVML that loses a card, hangs, crashes, changes its number of cards and its driver"
)

Doc = dict[str, Any]
Start = Callable[..., Running]
SOURCE = "eagletui.agent.gpus:GpuSource"
QUICK = {
    "answer": 1.0,
    "late": 0.2,
    "probe": 0.5,
    "leave_out": 600.0,
    "retry": [0.05],
    "lost": 0.2,
    "recount": 0.2,
    "library": 0.1,
}
MIB = 1024 * 1024


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake(library: Path, tmp_path: Path) -> FakeNvml:
    return FakeNvml(library, tmp_path)


@pytest.fixture(params=pythons(), ids=lambda path: "oldest" if "3.8" in path else "this")
def start(request: pytest.FixtureRequest, fake: FakeNvml) -> Iterator[Start]:
    running: list[Running] = []

    def begin(*settings: str, traffic: bool = False, environ: dict[str, str] | None = None, **timing: Any) -> Running:
        if settings:
            fake.set(*settings)
        running.append(Running(SOURCE, request.param, {**fake.environ, **(environ or {})}, **{**QUICK, **timing}))
        running[-1].send(start=[0.1, {"traffic": traffic}])
        return running[-1]

    yield begin
    for one in running:
        one.close()


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-0000-4000-8000-000000000000"


def complete(doc: Doc) -> bool:
    """Every group of every card has been asked at least once."""
    return bool(doc["cards"]) and all("energy" in card and "processes" in card for card in doc["cards"].values())


def told(text: str) -> Callable[[Doc], bool]:
    return lambda doc: text in doc.get("problem", "")


def fresh(doc: Doc) -> bool:
    return bool(doc["cards"]) and "stale_since" not in doc and "problem" not in doc


def test_what_may_be_an_alert_is_known_with_the_second_sample(start: Start) -> None:
    """A snapshot takes two samples: errors of any card must be in it."""
    source = start("card 6 ecc 3", "card 7 rows 2", "card 3 recovery 1")
    first = source.until(lambda doc: doc["cards"], "cards")
    second = source.until(lambda doc: doc["boot"] != first["boot"], "the second sample")
    assert all("ecc_uncorrected" in card and "recovery" in card for card in second["cards"].values())
    assert second["cards"][uuid(6)]["ecc_uncorrected"] == 3
    assert second["cards"][uuid(7)]["rows_pending"] is True
    assert second["cards"][uuid(3)]["recovery"] != "none"


def test_eight_healthy_cards(start: Start) -> None:
    running = start()
    board = board_from_doc(running.until(complete, "all groups"))
    assert running.says == [{"need": "pynvml"}], "asked for once"
    assert (board.present, board.driver, board.cuda, board.problem, board.expected) == (True, "595.58.03", "13.2", None, 8)
    assert [card.number for card in board.cards] == list(range(8))
    assert [card.minor for card in board.cards] == [2, 3, 0, 1, 6, 7, 4, 5], "the index is not the minor number"
    card = board.cards[0]
    assert card.uuid == uuid(0)
    assert card.name == "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    assert card.bus_id == "00000000:06:00.0"
    assert (card.mem_total, card.mem_reserved, card.mem_used) == (97887 * MIB, 636 * MIB, 0)
    assert (card.power, card.power_cap, card.power_min, card.power_max) == (39.2, 600.0, 300.0, 600.0)
    assert (card.temp, card.margin, card.pstate, card.clock_sm, card.clock_mem) == (26, 59, 8, 180, 405)
    assert (card.clock_sm_max, card.clock_mem_max, card.bar1_total) == (2430, 12481, 131072 * MIB)
    assert (card.pcie_gen, card.pcie_gen_max, card.pcie_width, card.pcie_width_max, card.pcie_replays) == (1, 5, 16, 16, 0)
    assert (card.ecc_corrected, card.ecc_uncorrected, card.rows_uncorrected, card.rows_pending) == (0, 0, 0, False)
    assert (card.throttle, card.recovery, card.persistence, card.processes) == ((), "none", True, ())
    assert card.fan is None, "the card has no fan: not 0"
    assert card.temp_mem is None
    assert card.lost is None


def test_the_stand_in_agrees_with_a_real_report(start: Start) -> None:
    """The same values as `nvidia-smi -q` printed on a real host with eight of these cards."""
    folder = os.environ.get("EAGLETUI_FIELD_LOGS")
    if not folder:
        pytest.skip("EAGLETUI_FIELD_LOGS is not set")
    text = (Path(folder) / "nvidia-smi-q-8x-rtx-pro-6000.txt").read_text()
    board = board_from_doc(start().until(complete, "all groups"))
    sections = text.split("\nGPU 0000")[1:]
    assert len(sections) == len(board.cards)
    for card, section in zip(board.cards, sections, strict=True):

        def value(key: str, after: str = "", section: str = section) -> str:
            rest = section[section.index(after) :]
            line = next(line for line in rest.splitlines() if line.strip().startswith(key) and ":" in line)
            return line.partition(":")[2].strip()

        assert value("Product Name") == card.name
        assert value("Minor Number") == str(card.minor)
        assert value("Total", "FB Memory Usage") == f"{(card.mem_total or 0) // MIB} MiB"
        assert value("Reserved", "FB Memory Usage") == f"{(card.mem_reserved or 0) // MIB} MiB"
        assert value("Total", "BAR1 Memory Usage") == f"{(card.bar1_total or 0) // MIB} MiB"
        assert value("Current Power Limit") == f"{card.power_cap:.2f} W"
        assert value("Min Power Limit") == f"{card.power_min:.2f} W"
        assert value("Max Power Limit") == f"{card.power_max:.2f} W"
        assert value("Fan Speed") == "N/A"
        assert value("Memory Current Temp") == "N/A"
        assert (card.fan, card.temp_mem) == (None, None)
        assert value("Current", "PCIe Generation") == str(card.pcie_gen)
        assert value("Max", "PCIe Generation") == str(card.pcie_gen_max)
        assert value("Current", "Link Width") == f"{card.pcie_width}x"
        assert value("SM", "Max Clocks") == f"{card.clock_sm_max} MHz"
        assert value("Memory", "Max Clocks") == f"{card.clock_mem_max} MHz"
        assert value("GPU Recovery Action").lower() == card.recovery
        assert value("Performance State") == f"P{card.pstate}"


def test_a_busy_card_and_its_processes(start: Start) -> None:
    me = os.getpid()
    gone = 2**22 + 7
    running = start(
        "card 1 util 97", "card 1 power 412345", "card 1 used 90000000000", "card 1 throttle 140", "card 1 gen 5",
        "card 1 recovery 2",
        f"process 1 C {me} 5000000000", f"process 1 G {me} 1000000", "process 1 M 1 -1", f"process 1 C {gone} 7000000",
    )  # fmt: skip
    card = board_from_doc(running.until(complete, "all groups")).cards[1]
    assert (card.util, card.power, card.pcie_gen) == (97.0, 412.0, 5)
    assert card.mem_used == 90000000000 // MIB * MIB
    assert card.throttle == ("SW power cap", "HW power brake"), "the generic bit says nothing beside a named one"
    assert card.recovery == "reboot the node"
    assert card.processes is not None
    by_pid = {p.pid: p for p in card.processes}
    assert by_pid[me].kind == "C+G"
    assert by_pid[me].mem == 5000000000 // MIB * MIB
    assert by_pid[me].command
    assert by_pid[me].user
    assert by_pid[me].start
    assert (by_pid[1].kind, by_pid[1].mem) == ("C", None), "memory is not available: not 0"
    assert (by_pid[gone].user, by_pid[gone].command, by_pid[gone].start) == (None, None, None)
    assert by_pid[gone].mem == 7000000 // MIB * MIB


def test_traffic_from_the_byte_counters(start: Start) -> None:
    doc = start("card 0 tx 6000000000", "card 0 rx 250000000", traffic=True).until(
        lambda doc: "pcie_tx" in doc.get("cards", {}).get(uuid(0), {}), "a rate"
    )
    card = board_from_doc(doc).cards[0]
    assert card.pcie_tx == pytest.approx(6e9, rel=0.02)
    assert card.pcie_rx == pytest.approx(2.5e8, rel=0.02)


def test_traffic_by_the_slow_call_only_while_somebody_looks(start: Start) -> None:
    running = start("count 2", "card 0 error 3 nvmlDeviceGetFieldValues", "card 0 rx 2048000", traffic=True)
    doc = running.until(lambda doc: doc["cards"].get(uuid(0), {}).get("pcie_rx"), "a rate")
    assert doc["cards"][uuid(0)]["pcie_rx"] == 2.0e6
    running.send(start=[0.1, {}])
    running.until(lambda doc: "pcie_rx" not in doc["cards"][uuid(0)], "no rate")


def test_what_a_card_does_not_support_is_absent_and_old_drivers_are_asked_the_old_way(start: Start) -> None:
    running = start(
        "count 2", "card 1 error 3 nvmlDeviceGetUtilizationRates", "card 1 error 3 nvmlDeviceGetPowerUsage",
        "missing nvmlDeviceGetMemoryInfo_v2", "missing nvmlDeviceGetMarginTemperature",
        "missing nvmlSystemGetCudaDriverVersion_v2", "card 1 error 4 nvmlDeviceGetTotalEccErrors",
    )  # fmt: skip
    board = board_from_doc(running.until(complete, "all groups"))
    whole, part = board.cards
    assert (whole.util, whole.ecc_corrected) == (0.0, 0)
    assert (part.util, part.mem_util, part.power, part.ecc_corrected) == (None, None, None, None)
    assert part.temp == 26
    assert part.lost is None, "not supported is not lost"
    assert (part.mem_used, part.mem_reserved) == (636 * MIB, None), "the older call counts the reserved memory as used"
    assert (part.margin, board.cuda) == (None, None)


def test_a_value_that_fails_once_is_absent_then_comes_back(start: Start, fake: FakeNvml) -> None:
    running = start("card 0 error 999 nvmlDeviceGetPowerUsage")
    doc = running.until(complete, "all groups")
    assert "power" not in doc["cards"][uuid(0)]
    assert "lost" not in doc["cards"][uuid(0)]
    fake.set()
    running.until(lambda doc: doc["cards"][uuid(0)].get("power") == 39.2, "the power")


@NVML_FAULTS
def test_one_lost_card_of_eight(start: Start, fake: FakeNvml) -> None:
    running = start()
    running.until(complete, "all groups")
    fake.set("card 5 error 15 *")
    doc = running.until(lambda doc: "lost" in doc["cards"][uuid(5)], "a lost card")
    board = board_from_doc(doc)
    assert len(board.cards) == board.expected == 8
    assert board.problem is None
    assert board.cards[5].lost == "GPU is lost"
    assert board.cards[5].name, "what it is stays known"
    assert (board.cards[5].power, board.cards[5].util, board.cards[5].processes) == (None, None, None), "what it does is not"
    fake.set("card 5 error 15 *", "card 4 util 55")
    running.until(lambda doc: doc["cards"][uuid(4)]["util"] == 55.0, "the others go on")
    fake.set("card 5 util 9")
    doc = running.until(lambda doc: "lost" not in doc["cards"][uuid(5)], "it comes back")
    assert doc["cards"][uuid(5)]["util"] == 9.0


@NVML_FAULTS
def test_a_card_that_is_lost_from_the_start(start: Start, fake: FakeNvml) -> None:
    running = start("card 2 error 15 *")
    doc = running.until(complete_but_lost, "all others")
    unknown = board_from_doc(doc).cards[2]
    assert (unknown.number, unknown.lost) == (2, "GPU is lost")
    fake.set()
    doc = running.until(lambda doc: uuid(2) in doc["cards"] and complete(doc), "the card")
    assert len(doc["cards"]) == 8
    assert "problem" not in doc


def complete_but_lost(doc: Doc) -> bool:
    return len(doc["cards"]) == 8 and all("energy" in c or "lost" in c for c in doc["cards"].values())


@NVML_FAULTS
def test_a_card_that_has_gone(start: Start, fake: FakeNvml) -> None:
    running = start()
    running.until(complete, "all groups")
    # the eighth number is gone, and what was card 5 is missing: 6 and 7 moved down
    fake.set("count 7", "card 5 uuid 6", "card 6 uuid 7")
    doc = running.until(lambda doc: len(doc["cards"]) == 7, "seven cards")
    board = board_from_doc(doc)
    assert board.expected == 8
    assert board.problem == f"7 of 8 cards answer; gone: {uuid(5)} (was card 5)"
    assert [c.uuid for c in board.cards] == [uuid(n) for n in (0, 1, 2, 3, 4, 6, 7)]
    assert [c.number for c in board.cards] == list(range(7))
    fake.set()
    doc = running.until(lambda doc: len(doc["cards"]) == 8 and fresh(doc), "all cards again")


@NVML_FAULTS
def test_a_call_that_hangs_is_named_and_its_card_left_out(start: Start, fake: FakeNvml) -> None:
    running = start(answer=1.0)
    running.until(complete, "all groups")
    old = running.children()
    fake.set("card 3 hang nvmlDeviceGetPowerUsage", "card 4 util 44")
    doc = running.until(told("nvmlDeviceGetPowerUsage on card 3 has not answered for "), "the hang")
    assert doc["stale_since"] <= doc["boot"]
    doc = running.until(fresh, "fresh data")
    assert running.children() != old, "another child"
    assert len(doc["cards"]) == 8
    assert doc["cards"][uuid(3)]["lost"].startswith("nvmlDeviceGetPowerUsage did not answer; left out")
    assert doc["cards"][uuid(3)]["power"] == 39.2, "its last values stay"
    assert doc["cards"][uuid(4)]["util"] == 44.0, "the others go on"


@NVML_FAULTS
def test_a_card_that_hung_is_tried_again_and_taken_back(start: Start, fake: FakeNvml) -> None:
    running = start(answer=1.0, leave_out=0.3)
    running.until(complete, "all groups")
    fake.set("card 3 hang nvmlDeviceGetUtilizationRates")
    running.until(lambda doc: "lost" in doc["cards"][uuid(3)], "left out")
    # it hangs again when it is tried: another child, and a longer pause
    running.until(lambda doc: "after 1 s" in doc["cards"][uuid(3)].get("lost", ""), "left out for longer")
    fake.set("card 3 util 33")
    doc = running.until(lambda doc: "lost" not in doc["cards"][uuid(3)], "taken back")
    assert doc["cards"][uuid(3)]["util"] == 33.0


@NVML_FAULTS
def test_a_crash_inside_the_library(start: Start, fake: FakeNvml) -> None:
    running = start()
    running.until(complete, "all groups")
    fake.set("card 6 crash nvmlDeviceGetTemperature")
    running.until(told("ended by SIGSEGV in nvmlDeviceGetTemperature on card 6; it is started again"), "the crash")
    doc = running.until(fresh, "fresh data")
    assert doc["cards"][uuid(6)]["lost"].startswith("nvmlDeviceGetTemperature crashed; left out")


def test_a_child_that_somebody_kills_is_replaced_and_no_card_blamed(start: Start) -> None:
    running = start()
    running.until(complete, "all groups")
    (child,) = running.children()
    os.kill(child, signal.SIGKILL)
    running.until(told("ended by SIGKILL"), "the end of the child")
    doc = running.until(fresh, "fresh data")
    assert not any("lost" in card for card in doc["cards"].values())


@NVML_FAULTS
def test_a_start_that_hangs(start: Start, fake: FakeNvml) -> None:
    running = start("init hang", opening=1.5)
    doc = running.until(told("nvmlInit has not answered for"), "the hang")
    assert "persistence mode" in doc["problem"]
    assert doc["cards"] == {}
    fake.set()
    running.until(complete, "all groups")


@NVML_FAULTS
@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("init error 18", "kernel module and library differ"),
        ("init error 9", "not loaded"),
        ("init error 4", "no permission"),
        ("init error 999", "nvmlInit failed: Unknown Error"),
        ("init crash", "SIGSEGV in nvmlInit"),
    ],
)
def test_a_start_that_fails_says_why_and_is_tried_again(start: Start, fake: FakeNvml, setting: str, text: str) -> None:
    running = start(setting)
    doc = running.until(told(text), text)
    assert doc["present"] is True
    assert doc["cards"] == {}
    fake.set()
    assert fresh(running.until(complete, "all groups"))


@NVML_FAULTS
def test_the_driver_is_changed_under_a_running_watch(start: Start, fake: FakeNvml) -> None:
    running = start()
    running.until(complete, "all groups")
    fake.set("init error 18", *(f"card {n} error 18 nvmlDeviceGetUtilizationRates" for n in range(8)))
    doc = running.until(told("reload the kernel module"), "the mismatch")
    assert len(doc["cards"]) == 8, "the last values stay"
    assert doc["stale_since"] < doc["boot"]
    fake.set()
    running.until(fresh, "fresh data")


@pytest.mark.fault(41, how="a machine without the library")
def test_no_driver(start: Start, tmp_path: Path) -> None:
    running = start(environ={"LD_LIBRARY_PATH": str(tmp_path / "nothing")})
    doc = running.until(lambda doc: True, "a document")
    if doc["present"]:
        pytest.skip("this machine has an NVIDIA driver")
    assert doc["problem"] == "no NVIDIA driver (libnvidia-ml.so.1 not found)"
    assert doc["cards"] == {}
    assert running.says == [], "pynvml is not asked for"


def test_no_cards(start: Start) -> None:
    doc = start("count 0").until(told("the NVIDIA driver answers, but shows no cards here"), "no cards")
    assert doc["present"] is True


def test_sixty_four_cards(start: Start) -> None:
    board = board_from_doc(start("count 64", answer=20.0).until(complete, "all groups"))
    assert [card.number for card in board.cards] == list(range(64))
    assert len({card.uuid for card in board.cards}) == 64


def test_names_of_any_bytes(start: Start) -> None:
    running = start("count 2", r"card 0 name \xff\xfe\x1b[31mred\xc3\xa9", r"card 1 name a \xe2\x80\xae b")
    board = board_from_doc(running.until(complete, "all groups"))
    assert board.cards[0].name == "��\x1b[31mredé", "drawn through the sanitiser, sent as it is"
    assert board.cards[1].name == "a ‮ b"


def test_stop_ends_the_child_and_start_goes_on(start: Start) -> None:
    running = start()
    running.until(complete, "all groups")
    (child,) = running.children()
    running.send(stop=1)
    running.send(start=[0.1, {}])
    running.until(lambda doc: child not in running.children() and fresh(doc), "another child")


@NVML_FAULTS
def test_the_child_dies_with_the_agent_also_inside_a_hung_call(fake: FakeNvml) -> None:
    running = Running(SOURCE, sys.executable, fake.environ, **{**QUICK, "answer": 600.0})
    try:
        running.send(start=[0.1, {}])
        running.until(complete, "all groups")
        (child,) = running.children()
        handle = os.pidfd_open(child)
        fake.set("card 0 hang nvmlDeviceGetUtilizationRates")
        running.until(told("nvmlDeviceGetUtilizationRates on card 0"), "the hang")
        running.process.kill()
        import select

        ended, _, _ = select.select([handle], [], [], 20)
        assert ended, "the child has ended"
        os.close(handle)
    finally:
        running.close()


def test_patches_of_eight_cards_fit_the_budget(start: Start) -> None:
    """Bytes, not time: what 1 Hz would send for eight working cards whose values jitter."""
    settings = [
        f"card {n} {v}" for n in range(8) for v in ("noisy 1", "util 90", "power 320000", "tx 9000000000", "rx 8000000000")
    ]
    running = start(*settings, traffic=True)
    old = running.until(complete, "all groups")
    total = 0
    for _ in range(20):
        doc = running.until(lambda doc: True)
        change = diff(old, doc)
        assert apply(old, change) == doc
        total += len(str(change).replace(" ", ""))
        old = doc
    assert total / 20 < 1500, "half of the 3 kB/s that everything together may take"


def test_no_nulls_anywhere(start: Start) -> None:
    def nulls(value: Any) -> bool:
        return value is None or (isinstance(value, dict) and any(nulls(v) for v in value.values()))

    running = start("card 1 error 3 *", "card 2 error 15 *", f"process 0 C {os.getpid()} -1")
    running.until(complete_but_lost, "all others")
    assert not any(nulls(doc) for doc in running.docs)
    boards: list[GpuBoard] = [board_from_doc(doc) for doc in running.docs]
    assert all(board.present for board in boards)
