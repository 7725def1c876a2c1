"""Tools that our programs run: what they say of trouble is found, also behind a bar."""

from __future__ import annotations

import sys

from eagletui.jobs.on_host.child import Child


def test_the_first_complaint_is_found_behind_a_bar() -> None:
    says = (
        "print('Map (num_proc=1):   0%|          | 0/2 [00:00<?, ? examples/s]a - Failed to process conversation 0: it is off');"
        "print('Failed to process conversation 1: no');print('ValueError: nothing is left');raise SystemExit(1)"
    )
    child = Child([sys.executable, "-c", says], complains=r"Failed to process conversation \d+: (.*)")
    seen: list[float] = []
    assert child.wait(lambda mark: seen.append(mark.done)) == 1
    assert child.complaint == "it is off"
    assert child.last[-1] == "ValueError: nothing is left"
    assert seen == [0.0]
