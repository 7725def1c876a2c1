"""The doctor's judgements on facts made by hand, and the gathering of facts from a host double."""

from __future__ import annotations

from typing import Any

import pytest

from eagletui.doctor.facts import HostFacts, gather, own_cgroup
from eagletui.doctor.findings import Finding, verdict
from eagletui.doctor.host_checks import filesystem_of, judge_host, kill_user_processes, parse_limits
from eagletui.hosts.base import HostError
from eagletui.records import Disk, GpuBoard, GpuSample, HostSample, to_doc
from tests.watch.double import INFO, FakeHost

GIB = 1 << 30
CARDS = tuple(GpuSample(f"GPU-{n}", n, name="NVIDIA RTX PRO 6000 Blackwell Server Edition", persistence=True) for n in range(2))
BOARD = GpuBoard(1000.0, True, driver="580.95", cuda="13.0", cards=CARDS)
SAMPLE = HostSample(1000.0, mem_total=100 * GIB, mem_available=80 * GIB, shm_total=50 * GIB, shm_used=0)
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 524288               files
Max locked memory         8388608              unlimited            bytes
"""


def facts(**changes: Any) -> HostFacts:
    base = HostFacts(
        INFO,
        offset=0.1,
        doubt=0.01,
        texts={"limits": LIMITS, "mounts": "/dev/sda / ext4 rw 0 0\nsrv:/h /home nfs4 rw 0 0\n", "driver": "NVRM version"},
        stats={"/usr/bin/nvidia-smi": {"size": 1}, "/sys/fs/cgroup/cgroup.controllers": {"size": 0}},
        board=BOARD,
        sample=SAMPLE,
    )
    return base._replace(**changes)


def found(id_: str, **changes: Any) -> Finding | None:
    cards = changes.pop("expected", None)
    return next((finding for finding in judge_host(facts(**changes), cards) if finding.id == id_), None)


def severity(id_: str, **changes: Any) -> str | None:
    finding = found(id_, **changes)
    return None if finding is None else finding.severity


def test_a_good_host_is_all_fine() -> None:
    findings = judge_host(facts(), 2)
    assert {finding.severity for finding in findings} == {"ok"}
    assert verdict(findings) == "ok"
    assert all(finding.evidence for finding in findings)


@pytest.mark.parametrize(
    ("id_", "changes", "expected"),
    [
        ("clock", {"offset": 90.0}, "warn"),
        ("clock", {"offset": -90.0}, "warn"),
        ("pidfd", {"info": INFO._replace(kernel="4.18.0-553.el8")}, "warn"),
        ("pidfd", {"info": INFO._replace(kernel="odd")}, None),
        ("cgroup", {"stats": {}}, "info"),
        ("nvml", {"board": None, "board_problem": "no answer within 10 s"}, "bad"),
        ("nvml", {"board": GpuBoard(1.0, False)}, "bad"),  # the kernel module is there, the library is not
        ("nvml", {"board": GpuBoard(1.0, False), "texts": {}, "stats": {}}, "info"),
        ("nvml", {"board": GpuBoard(1.0, False), "texts": {}, "stats": {}, "expected": 8}, "bad"),
        ("nvml", {"board": BOARD._replace(cards=(CARDS[0], CARDS[1]._replace(lost="GPU is lost")))}, "ok"),
        ("gpu:GPU-1:lost", {"board": BOARD._replace(cards=(CARDS[0], CARDS[1]._replace(lost="GPU is lost")))}, "bad"),
        ("gpu:missing", {"expected": 8}, "bad"),
        ("gpu:stale", {"board": BOARD._replace(stale_since=900.0)}, "bad"),
        ("persistence", {"board": BOARD._replace(cards=(CARDS[0]._replace(persistence=False),))}, "warn"),
        ("persistence", {"board": BOARD._replace(cards=(CARDS[0]._replace(persistence=None),))}, None),
        ("nvidia-smi", {"stats": {}}, "info"),
        ("disks", {"sample": None}, "warn"),
        ("disk:/data", {"sample": SAMPLE._replace(disks=(Disk("/data", "x", "xfs", 1000 * GIB, 5 * GIB),))}, "bad"),
        ("disk:/data", {"sample": SAMPLE._replace(disks=(Disk("/data", "x", "xfs", 1000 * GIB, 500 * GIB),))}, "ok"),
        ("shm", {"sample": SAMPLE._replace(shm_total=64 << 20)}, "warn"),
        ("shm", {"sample": SAMPLE._replace(shm_used=49 * GIB)}, "bad"),
        ("host:memory", {"sample": SAMPLE._replace(mem_available=GIB)}, "bad"),
        ("state", {"info": INFO._replace(state_problem="/var/lib/eagletui belongs to user 5")}, "warn"),
        ("state", {"info": INFO._replace(state_dir="/home/u/.local/state/eagletui")}, "warn"),
        ("state", {"info": INFO._replace(state_dir="/var/lib/eagletui")}, "ok"),
        ("nofile", {"texts": {"limits": "Max open files            1024                 1024               files\n"}}, "warn"),
        ("memlock", {"texts": {"limits": "Max locked memory         65536                65536              bytes\n"}}, "info"),
    ],
)
def test_each_check(id_: str, changes: dict[str, Any], expected: str | None) -> None:
    assert severity(id_, **changes) == expected


@pytest.mark.parametrize(
    ("uid", "systemd", "linger", "logind", "expected"),
    [
        (0, True, False, "KillUserProcesses=yes", "ok"),
        (1000, False, False, "KillUserProcesses=yes", "ok"),
        (1000, True, False, "KillUserProcesses=yes", "bad"),
        (1000, True, True, "KillUserProcesses=yes", "ok"),
        (1000, True, False, "#KillUserProcesses=yes", "ok"),
    ],
)
def test_survival_of_jobs(uid: int, systemd: bool, linger: bool, logind: str, expected: str) -> None:
    info = INFO._replace(uid=uid, user="u", systemd=systemd)
    stats = {"/var/lib/systemd/linger/u": {"size": 0} if linger else None}
    finding = found("survival", info=info, texts={"logind": logind}, stats=stats)
    assert finding is not None
    assert finding.severity == expected
    assert (expected == "bad") == ("enable-linger" in finding.remedy)


def test_the_last_setting_of_logind_counts() -> None:
    assert kill_user_processes("[Login]\nKillUserProcesses=no\n\n[Login]\n KillUserProcesses = Yes\n")
    assert not kill_user_processes("KillUserProcesses=yes\nKillUserProcesses=no")


def test_parsers() -> None:
    assert parse_limits(LIMITS) == {"Max open files": (1024, 524288), "Max locked memory": (8388608, None)}
    assert own_cgroup("12:devices:/x\n0::/user.slice/a.scope\n") == "/user.slice/a.scope"
    assert own_cgroup("0::/\n") is None
    mounts = "/dev/a / ext4 rw\nb /data xfs rw\nc /data/with\\040space nfs rw\n"
    assert filesystem_of("/data/with space/x", mounts) == "nfs"
    assert filesystem_of("/database", mounts) == "ext4"
    assert filesystem_of("/x", "") is None


def test_verdict() -> None:
    assert verdict([]) == "ok"
    assert verdict([Finding("a", "info", "t"), Finding("b", "ok", "t")]) == "ok"
    assert verdict([Finding("a", "warn", "t"), Finding("b", "bad", "t"), Finding("c", "ok", "t")]) == "bad"


def host() -> FakeHost:
    fake = FakeHost()
    fake.answers = {
        "hello": lambda **_: to_doc(INFO),
        "stat": lambda paths: [{"size": 1} if path == "/usr/bin/nvidia-smi" else None for path in paths],
        "list": lambda path, limit: {
            "entries": [{"name": "10.conf"}, {"name": "note.txt"}] if path.startswith("/etc") else [],
            "cut": False,
        },
    }
    fake.files = {
        "/proc/self/limits": LIMITS.encode(),
        "/proc/self/cgroup": b"0::/system.slice/x\n",
        "/etc/systemd/logind.conf.d/10.conf": b"KillUserProcesses=yes\n",
    }
    board = {"present": True, "driver": "580"}
    fake.documents = {"gpus": {**board, "cards": {"GPU-a": {"number": 0}}}, "host": {"mem_total": 5}}
    fake.later = {"gpus": {**board, "cards": {"GPU-a": {"number": 0, "ecc_uncorrected": 3}}}}
    return fake


async def test_gathering_survives_what_is_not_there() -> None:
    fake = host()
    gathered = await gather(fake)
    assert gathered.board is not None
    assert [card.uuid for card in gathered.board.cards] == ["GPU-a"]
    assert gathered.sample is not None
    assert gathered.texts["logind"].strip() == "KillUserProcesses=yes"
    assert "driver" not in gathered.texts
    assert gathered.stats["/usr/bin/nvidia-smi"] == {"size": 1}
    assert "/sys/fs/cgroup/system.slice/x/cgroup.kill" in gathered.stats
    assert sorted(fake.ended) == ["gpus", "host"]
    assert any("3 uncorrected memory errors" in f"{finding.title} {finding.evidence}" for finding in judge_host(gathered))


async def test_a_refused_stream_is_a_fact_and_a_lost_connection_an_error() -> None:
    fake = host()
    fake.refuse["gpus"] = HostError("subscribe", "cannot run its source", kind="agent")
    gathered = await gather(fake)
    assert gathered.board is None
    assert "cannot run its source" in gathered.board_problem
    fake.refuse["gpus"] = HostError("connection", "reset", kind="closed", retry=True)
    with pytest.raises(HostError, match="reset"):
        await gather(fake)
