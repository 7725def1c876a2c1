"""Hidden states of prepared samples, through vLLM (`speculators generate-offline-data`) or with transformers; disk asked first.

``PYTHON -m eagletui.jobs.on_host.extract --data DIR --output DIR --target MODEL --layers 2,15,27 ...``. In the output: a file a
sample, and ``rows.txt`` with each sample's length and checksum, by which the job's supervisor judges the files.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, List, NamedTuple, Sequence, Tuple

from eagletui.jobs import hidden_states
from eagletui.jobs.hidden_states import FORMATS, Layout, Need, Row
from eagletui.jobs.on_host import probe, telling
from eagletui.jobs.on_host.arrow_rows import BadDataset, files
from eagletui.jobs.on_host.inputs import facts
from eagletui.jobs.on_host.target_config import Shape, read_shape
from eagletui.jobs.outputs import NotOurs, claim

_SLOWEST = 200.0
"""Tokens a second that a server does at the very least: what a request's time limit rests on."""


class Refused(Exception):
    """Nothing was begun; the text says why and what to do."""


class Plan(NamedTuple):
    """What is to be done: all ``rows``, the ``layers`` with the final one, the target's shape, and what is missing."""

    rows: List[Row]
    layers: List[int]
    shape: Shape
    layout: Layout
    need: Need


def main(argv: Sequence[str]) -> int:
    """The exit status: 0 when the tool went through all samples (some may be skipped), 2 when nothing was begun."""
    options = _parser().parse_args(argv)
    tell = telling.Teller("samples")
    try:
        plan = prepare(options, tell)
        if plan.need.files:
            tell.stage("extracting", total=len(plan.rows))
            if options.backend == "transformers":
                from eagletui.jobs.on_host.extract_transformers import extract

                extract(options, plan, tell)
            else:
                _through_server(options, plan)
    except (Refused, NotOurs, BadDataset, probe.NoStates) as error:
        telling.say("result", why=str(error))
        return 2
    telling.say("result", finished=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="extract")
    for name in ("--data", "--output", "--target"):
        parser.add_argument(name, required=True)
    parser.add_argument("--layers", default="")
    parser.add_argument("--backend", choices=("vllm", "transformers"), default="vllm")
    parser.add_argument("--endpoint", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--storage", default="")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=0)
    parser.add_argument("--reserve", type=int, default=1 << 30)
    parser.add_argument("--dtype", choices=("auto", *FORMATS), default="auto")
    parser.add_argument("--inputs", default="{}")
    parser.add_argument("--trust-remote-code", action="store_true")
    return parser


def prepare(options: Any, tell: telling.Teller) -> Plan:
    """Everything that can be known before a byte is written. Raises `Refused`, `NotOurs`, `BadDataset`."""
    for package in ("speculators", "datasets") if options.backend == "vllm" else ("transformers", "safetensors"):
        if find_spec(package) is None:
            raise Refused(
                "%s is not installed beside %s: %s -m pip install %s" % (package, sys.executable, sys.executable, package)
            )
    try:
        shape = read_shape(options.target)
    except (OSError, ValueError) as error:
        raise Refused("the target's shape is unknown: %s" % error) from None
    layers = [int(word) for word in options.layers.split(",") if word] or hidden_states.default_layers(shape.layers)
    wrong = [layer for layer in layers if not 0 <= layer <= shape.layers]
    if wrong:
        raise Refused("layers: %s has the layers 0 to %d, not %s" % (options.target, shape.layers, wrong))
    layers.append(shape.layers)
    dtype = shape.dtype if options.dtype == "auto" else options.dtype
    if dtype not in FORMATS:
        raise Refused("dtype: the target says %s; set the format that the server computes in (%s)" % (dtype, ", ".join(FORMATS)))
    layout = Layout(len(layers), shape.width, dtype)
    tell.stage("reading the prepared lengths")
    rows, first = read_prepared(options.data)
    if options.limit:
        rows = rows[: options.limit]
    if not rows:
        raise Refused("%s has no samples" % options.data)
    missing = _room(options, rows, layout)
    if options.backend == "vllm" and missing.files:
        handed = probe.probe(options.endpoint, first, options.timeout or time_limit(max(row.tokens for row in rows), 1))
        missing = _as_handed(options, handed, layout, rows)
        layout = layout._replace(dtype=handed.dtype)
    try:
        claim(options.output, "extract", facts(options.inputs), "eagletui extract")
        _clear_wrong(options.output, rows, layout)
        hidden_states.write_rows(os.path.join(options.output, hidden_states.ROWS), rows, layout)
    except OSError as error:
        raise Refused("%s cannot be written (%s)" % (options.output, error.strerror)) from None
    return Plan(rows, layers, shape, layout, missing)


def _as_handed(options: Any, handed: probe.Handed, layout: Layout, rows: Sequence[Row]) -> Need:
    """Compare what the server hands out with what is wanted, and ask the disk again with its own number format."""
    if (handed.layers, handed.width) != (layout.layers, layout.width):
        raise Refused(
            "the server hands out %d layers of %d numbers, and %d of %d are wanted: its layers, or its model, are others"
            % (handed.layers, handed.width, layout.layers, layout.width)
        )
    if options.dtype not in ("auto", handed.dtype):
        raise Refused("dtype: the server computes in %s, not in %s" % (handed.dtype, options.dtype))
    options.storage = handed.storage
    return _room(options, rows, layout._replace(dtype=handed.dtype))


def read_prepared(data: str) -> Tuple[List[Row], List[int]]:
    """Length and checksum of every prepared sample, in order, and the first tokens of the first. Raises `BadDataset`."""
    first: List[int] = []
    pyarrow: Any = import_module("pyarrow")
    ipc: Any = import_module("pyarrow.ipc")
    out: List[Row] = []
    for path in files(data):
        try:
            with pyarrow.memory_map(path) as source, ipc.open_stream(source) as batches:
                for batch in batches:
                    if "input_ids" not in batch.schema.names:
                        raise BadDataset("%s has no column input_ids" % path)
                    for ids in batch.column(batch.schema.get_field_index("input_ids")):
                        numbers = ids.values.to_numpy().tolist()
                        first = first or numbers[:8]
                        out.append(Row(len(numbers), hidden_states.checksum(numbers)))
        except (OSError, pyarrow.ArrowException) as error:
            raise BadDataset("%s cannot be read: %s" % (path, error)) from None
    return out, first


def _existing(path: str) -> str:
    """The path, or the nearest directory above it that exists."""
    while not os.path.isdir(path):
        path = os.path.dirname(path) or "/"
    return path


def _room(options: Any, rows: Sequence[Row], layout: Layout) -> Need:
    place = _existing(options.output)
    if options.storage:
        storage = _existing(options.storage)
        if os.stat(storage).st_dev != os.stat(place).st_dev:
            raise Refused(
                "the server's folder %s lies on another disk than %s: files would be copied, and one that is cut short"
                " would count as done; choose them on one disk" % (options.storage, options.output)
            )
    disk = os.statvfs(place)
    there, _ = _sorted_out(options.output, rows, layout)
    at_once = 0 if options.backend == "transformers" else options.concurrency
    missing = hidden_states.need(rows, there, layout, at_once, disk.f_frsize)
    free = disk.f_bavail * disk.f_frsize
    wanted = missing.room + missing.passing + options.reserve if missing.files else 0
    counters = {
        "tokens to do": missing.tokens,
        "needs": {"value": missing.room, "unit": "B"},
        "free": {"value": free, "unit": "B"},
    }
    telling.say("progress", stage="disk: %s needed, %s free" % (_size(missing.room), _size(free)), counters=counters)
    if wanted > free:
        raise Refused(
            "%s are needed for %d samples of %d tokens (%s, what passes through, and a reserve of %s), and %s has %s free:"
            " make room, choose another output, or extract fewer"
            % (_size(wanted), missing.files, missing.tokens, _size(missing.room), _size(options.reserve), place, _size(free))
        )
    if disk.f_files and disk.f_favail < missing.files + 16:
        raise Refused("%s has room for only %d more files, and %d are needed" % (place, disk.f_favail, missing.files))
    return missing


def _sorted_out(output: str, rows: Sequence[Row], layout: Layout) -> Tuple[List[int], List[Tuple[str, str]]]:
    """The samples that are there with the right shape, and the files of another one, each with what is wrong with it."""
    good, wrong = [], []
    for index in hidden_states.present(output):
        path = os.path.join(output, hidden_states.file_name(index))
        if index >= len(rows):
            continue  # of a run over more samples: it is right, and not asked for
        problem = hidden_states.shape_problem(path, rows[index], layout)
        if problem is None:
            good.append(index)
        else:
            wrong.append((path, problem))
    return good, wrong


def _clear_wrong(output: str, rows: Sequence[Row], layout: Layout) -> None:
    """Remove files of another shape: they would count as done. Only once the output is ours and the server's format is known:
    another extraction's files have other shapes too."""
    for path, problem in _sorted_out(output, rows, layout)[1]:
        telling.say("note", text="made again: %s" % problem)
        os.unlink(path)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return "%.4g %s" % (count, unit)
        count /= 1000
    return "%.4g TB" % count


def time_limit(longest: int, at_once: int) -> float:
    """Seconds for one request: the tool's own 120, and the time in which a slow server does all that is asked at once."""
    return 120.0 + at_once * longest / _SLOWEST


def _through_server(options: Any, plan: Plan) -> None:
    module: Any = import_module("speculators.cli.generate_offline_data")
    longest = max(row.tokens for row in plan.rows)
    limit = options.timeout or time_limit(longest, options.concurrency)
    waiting = module.wait_for_lock_async

    async def patient(path: str, **_: Any) -> None:
        # the tool's own 10 s are too short when the disk has many long samples to write at once
        await waiting(path, timeout=limit)

    module.wait_for_lock_async = patient
    module.generate_offline_data(
        model=None,
        endpoint=options.endpoint,
        preprocessed_data=options.data,
        max_samples=options.limit or None,
        output=options.output,
        concurrency=options.concurrency,
        validate_outputs=False,
        request_timeout=limit,
        max_retries=3,
        fail_on_error=False,
        max_consecutive_errors=None,
        world_size=1,
        rank=0,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
