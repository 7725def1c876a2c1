"""The frozen records that everybody shares: agent, shim, client and screens.

Every record is a ``NamedTuple`` of plain values. ``None`` always means "not available", never zero. Times are seconds:
``boot`` times count from the host's boot (``CLOCK_BOOTTIME``, it neither jumps nor stops in suspend), ``wall`` times are
Unix time by the host's clock. Sizes are bytes, rates bytes per second, unless a field says otherwise.

On the wire and on disk a record is a JSON object that leaves out what is ``None`` (`to_doc`); `from_doc` reads one back,
ignores keys it does not know (an older reader of a newer file) and names the key when one it needs is missing.

Runs on the host too: standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

from eagletui.records.cards import GpuBoard, GpuProcess, GpuSample
from eagletui.records.codec import BadRecord, from_doc, to_doc
from eagletui.records.ending import KillPlan, KillReport, LogLine, Victim
from eagletui.records.host import Disk, HostInfo, HostSample, Process
from eagletui.records.jobs import Alert, Cause, Evidence, JobState, Phase
from eagletui.records.serving import Acceptance, Eta, Liveness, Percentiles, ServerSample, ServerView, ServerWindow
from eagletui.records.work import Counter, Work

__all__ = [
    "Acceptance",
    "Alert",
    "BadRecord",
    "Cause",
    "Counter",
    "Disk",
    "Eta",
    "Evidence",
    "GpuBoard",
    "GpuProcess",
    "GpuSample",
    "HostInfo",
    "HostSample",
    "JobState",
    "KillPlan",
    "KillReport",
    "Liveness",
    "LogLine",
    "Percentiles",
    "Phase",
    "Process",
    "ServerSample",
    "ServerView",
    "ServerWindow",
    "Victim",
    "Work",
    "from_doc",
    "to_doc",
]
