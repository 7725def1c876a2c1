"""Every entry of the failure catalogue: its example is diagnosed, the text that is close to it is not."""

from __future__ import annotations

import re

import pytest

from eagletui.engines.diagnosis.entries import BY_ID, ENTRIES, candidates
from eagletui.engines.diagnosis.entry import BUILD, HEARSAY, IMPORT, SEEN, SGLANG, SOURCE, Signature, version_of
from eagletui.engines.diagnosis.judge import fill
from eagletui.engines.failure_words import suspicious
from eagletui.engines.reader import LogReader

VLLM_HEAD = "(APIServer pid=1) INFO 11-29 10:00:00 [utils.py:1] vLLM API server version 0.20.0\n"
SGLANG_HEAD = "[2026-11-29 16:19:00] server_args=ServerArgs(model_path='/m', tp_size=8, port=30000)\n"
RAISED = re.compile(r"(?:\w+\.)*[A-Z]\w*[a-z]\w*(?:: |$)")
TRACE = 'Traceback (most recent call last):\n  File "/srv/x.py", line 1, in <module>\n    run()\n'


def log_of(entry: Signature, example: str) -> bytes:
    """The example in a log: an exception gets the traceback that it would have."""
    head = SGLANG_HEAD if entry.engine == SGLANG else VLLM_HEAD if entry.stage not in (BUILD, IMPORT) else ""
    if "Traceback" not in example:
        lines = example.split("\n")
        at = next((n for n, line in enumerate(lines) if RAISED.match(line)), None)
        if at is None and lines[0].startswith("  "):
            lines[0] = "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n" + lines[0]
            at = 0
        if at is not None:
            lines[at] = TRACE + lines[at]
        example = "\n".join(lines)
    return (head + example + "\n").encode()


def read(entry: Signature, example: str) -> LogReader:
    reader = LogReader()
    reader.feed(log_of(entry, example))
    reader.finish()
    return reader


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_the_example_is_diagnosed(entry: Signature) -> None:
    reader = read(entry, entry.hit)
    outcome, causes = reader.diagnosis()
    told = {cause.id: cause for cause in causes}
    assert outcome == "failed", reader.summary()
    if entry.weak:
        assert entry.id in reader._notes.hits
        return
    assert entry.id in told, causes
    cause = told[entry.id]
    assert cause.evidence
    # of an exception's text several lines are one piece of evidence
    assert cause.evidence[0].text in " ".join(line.strip() for line in log_of(entry, entry.hit).decode().split("\n"))
    assert not re.search(r"\{\w+\}", cause.title + cause.cause + cause.remedy)
    if entry.provenance == HEARSAY:
        assert causes[0].id != entry.id
    else:
        assert causes[0].id == entry.id, causes


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_what_is_close_to_it_is_not(entry: Signature) -> None:
    reader = read(entry, entry.miss)
    assert entry.id not in reader._notes.hits
    assert entry.id not in [cause.id for cause in reader.diagnosis()[1]]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_an_entry_is_whole(entry: Signature) -> None:
    pattern = re.compile(entry.pattern)
    groups = set(pattern.groupindex)
    assert set(re.findall(r"\{(\w+)\}", entry.title + entry.cause + entry.remedy)) <= groups
    assert any(key in entry.hit for key in entry.keys)
    assert any(suspicious(line.encode()) for line in entry.hit.split("\n"))
    assert entry.provenance in (SEEN, SOURCE, HEARSAY)
    assert entry.source
    assert entry.cause
    assert entry.remedy
    assert 0 < entry.confidence <= 1
    # file names and line numbers of the engines change with every release
    assert not re.search(r"\w+\\?\.py:\d", entry.pattern)
    assert entry.title[0].islower() or entry.title.split()[0] not in ("the", "a")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_every_key_leads_to_its_entry(entry: Signature) -> None:
    for key in entry.keys:
        for text in (key, f"x: {key} y", f"'{key}'", f"a.{key}, b"):
            assert entry in [matcher.entry for matcher in candidates(text.encode())], key


def test_ids_are_unique() -> None:
    assert len(BY_ID) == len(ENTRIES)


def test_no_pattern_takes_long_on_a_long_line() -> None:
    # a pattern that goes back over its line again and again would hold up the log: none may match by trying all splits
    for entry in ENTRIES:
        assert not re.match(r"\(\?:[^)]*\.\*\)|\.\*", entry.pattern), entry.id


def test_versions_and_holes() -> None:
    assert version_of("0.20.2rc1.dev9+g1") == (0, 20, 2)
    assert version_of(None) == version_of("nightly") == ()
    assert fill("a: {x} b ({y}) c", {"x": "1", "y": ""}) == "a: 1 b c"
    assert fill("no room ({op}, {ms} ms)", {"op": "A", "ms": "5"}) == "no room (A, 5 ms)"
    assert fill("cut: {why}", {}) == "cut"
