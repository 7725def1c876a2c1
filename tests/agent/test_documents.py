"""Stream documents to records: whatever comes, a record goes out, and what the sources send goes through whole."""

from __future__ import annotations

import json
from typing import Any, get_type_hints

from hypothesis import given, settings
from hypothesis import strategies as st

from eagletui.agent.documents import board_from_doc, host_from_doc, processes_from_doc
from eagletui.records import Disk, GpuBoard, GpuProcess, GpuSample, HostSample, Process, to_doc

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.just(10**400)
    | st.sampled_from(["0", "12"])
)
junk = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3))


def near(cls: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with the record's keys and any value."""
    return st.dictionaries(st.sampled_from(cls._fields) | st.text(max_size=4), junk, max_size=12)


def well_typed(record: Any) -> bool:
    """Every plain field holds None or its own type."""
    for name, hint in get_type_hints(type(record)).items():
        value = getattr(record, name)
        kinds = getattr(hint, "__args__", None) or (hint,)
        plain = tuple(k for k in kinds if k in (int, float, str, bool))
        if plain and value is not None and type(value) not in plain:
            return False
    return True


cards = st.dictionaries(st.text(max_size=4), near(GpuSample) | junk, max_size=4)


@settings(max_examples=300)
@given(near(GpuBoard) | st.fixed_dictionaries({"cards": cards, "boot": junk, "expected": junk}))
def test_any_document_is_a_board(doc: dict[str, Any]) -> None:
    board = board_from_doc(doc, 5.0)
    assert isinstance(board, GpuBoard)
    assert well_typed(board)
    assert all(well_typed(card) and card.uuid in doc["cards"] for card in board.cards)
    assert all(well_typed(p) for card in board.cards for p in card.processes or ())


@settings(max_examples=300)
@given(near(HostSample) | st.fixed_dictionaries({"disks": st.dictionaries(st.text(max_size=4), near(Disk) | junk, max_size=3)}))
def test_any_document_is_a_host_sample(doc: dict[str, Any]) -> None:
    sample = host_from_doc(doc, 5.0)
    assert well_typed(sample)
    assert all(well_typed(disk) for disk in sample.disks)


@given(st.dictionaries(st.sampled_from(["1", "22", "x", "", "-3", "٣", "9" * 30]), near(Process) | junk, max_size=5))
def test_any_document_is_a_table(doc: dict[str, Any]) -> None:
    for process in processes_from_doc(doc, 100.0):
        assert well_typed(process)
        assert str(process.pid) in ("1", "22")


def sent(record: Any, **keyed: Any) -> Any:
    """Over the wire: JSON and back."""
    return json.loads(json.dumps({**to_doc(record), **keyed}))


def test_a_board_goes_through_whole() -> None:
    process = GpuProcess(pid=7, kind="C+G", mem=5, start=9, user="me", command="python", job="j")
    busy = GpuSample("GPU-b", 1, util=1.5, power=300.0, throttle=("SW power cap",), rows_failed=False, processes=(process,))
    idle = GpuSample("GPU-a", 10, throttle=(), processes=())
    dark = GpuSample("GPU-c", 2, lost="GPU is lost")
    board = GpuBoard(3.5, True, "595", "13.2", None, 2.5, 8, (busy, dark, idle))
    docs = {
        card.uuid: {**to_doc(card), "processes": {str(p.pid): to_doc(p) for p in card.processes}}
        if card.processes is not None
        else to_doc(card)
        for card in (idle, busy, dark)
    }
    assert board_from_doc(sent(board, cards=docs)) == board


def test_a_wrong_value_costs_only_itself() -> None:
    doc = {"boot": "x", "present": 1, "driver": 5, "cards": {"GPU-a": {"number": 0, "util": "97", "power": True, "temp": 61.0}}}
    board = board_from_doc(doc, 9.0)
    assert (board.boot, board.present, board.driver) == (9.0, True, None)
    (card,) = board.cards
    assert (card.uuid, card.util, card.power, card.temp) == ("GPU-a", None, None, 61)
    assert board_from_doc({"cards": {"GPU-a": {"util": 3.0}}}).cards == (), "a card without a number cannot be placed"


def test_a_host_goes_through_whole() -> None:
    disks = (Disk("/", "/dev/sda1", "ext4", 100, 40), Disk("/data", "nas:/x", "nfs4", 100, 4, 1.5, 2.5))
    sample = HostSample(3.5, cpu=12.5, mem_total=2**41, uptime=3.5, disks=disks, hung_mounts=("/data",))
    doc = sent(sample._replace(uptime=None), disks={disk.mount: to_doc(disk) for disk in disks})
    assert host_from_doc(doc) == sample, "uptime is the boot time"


def test_a_table_is_sorted_and_gets_its_ages() -> None:
    table = [Process(1, 100, cpu=0.0, rss=9), Process(2, 5000, cpu=50.0, rss=1), Process(3, 200)]
    found = processes_from_doc({str(p.pid): sent(p) for p in table}, boot=100.0, clock_ticks=100)
    assert [(p.pid, p.age) for p in found] == [(2, 50.0), (1, 99.0), (3, 98.0)]
    assert processes_from_doc({"1": {"start": 1}})[0].age is None
    assert processes_from_doc({"1": {"cpu": 1}}) == (), "without its start a process has no identity"
