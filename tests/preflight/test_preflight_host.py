"""Rules about the place, the machine and the launch's settings: one that breaks each, and the nearest that does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from eagletui.engines.preflight.findings import BLOCK, INFO, WARN, Report
from eagletui.engines.preflight.judge import judge
from eagletui.engines.preflight.launch import launch_of
from eagletui.records import GpuProcess, JobState
from tests.preflight import world

GIB = world.GIB
TARGET = {
    "given": "/kimi",
    "path": "/kimi",
    "kind": "folder",
    "config": world.KIMI,
    "bytes": 547 * 10**9,
    "weights": "safetensors",
}
DRAFT = {"given": "/d", "path": "/d", "kind": "folder", "config": world.DRAFTER, "weights": "safetensors"}
ENGINE = {"package": "/venv/vllm", "version": "0.20.2", "packages": {"tiktoken": "0.9.0"}, "cpu": False}


def judged(
    place: Mapping[str, Any] | None = None,
    machine: Mapping[str, Any] | None = None,
    engine: Mapping[str, Any] | None = None,
    cards: Any = None,
    jobs: Mapping[str, JobState] | None = None,
    expected: int | None = None,
    **profile: Any,
) -> Report:
    """The findings for a launch of Kimi on eight cards, with these parts of the facts."""
    base = {"engine": profile.pop("serves", "vllm"), "model": "/kimi", "tp": 8}
    args = [*(["--trust-remote-code"] if profile.pop("trust", True) else []), *profile.pop("args", [])]
    own = {**ENGINE, "version": "0.5.23"} if base["engine"] == "sglang" else ENGINE
    asked = world.launch({**base, **profile, "args": args})
    facts = {
        "engine": {**own, **(engine or {})},
        "target": TARGET,
        "place": place or {},
        "machine": machine or {},
        **({"drafter": DRAFT} if asked.drafter else {}),
    }
    return judge(asked, facts, world.board() if cards is None else cards, jobs, expected)


def test_nothing_is_said_of_what_is_not_known() -> None:
    report = judged()
    assert report.verdict == "clear"
    assert world.ids(report) == {"kv-estimate"}


BIG = {"free": 100 * GIB, "total": 200 * GIB}
PLACES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("port-taken", BLOCK, {"port": {"number": 8000, "taken": "port 8000 is held by pid 7 (nginx)"}}, {"port": {"number": 8000}}),
    (
        "lease-held",
        BLOCK,
        {"leases": [{"lease": "port-8000", "holder": json.dumps({"job": "j", "operator": "anna"})}]},
        {"leases": []},
    ),
    ("shm-small", BLOCK, {"shm": {"total": 64 << 20, "free": 60 << 20}}, {"shm": {"total": 16 * GIB, "free": 15 * GIB}}),
    ("shm-small", WARN, {"shm": {"total": 8 * GIB, "free": 2 * GIB}}, {"shm": {"total": 16 * GIB, "free": 15 * GIB}}),
    (
        "shm-leftovers",
        WARN,
        {"shm": {**BIG, "engine_bytes": 34 * GIB, "engine_files": 2, "files": [{"path": "/dev/shm/psm_1", "used": False}]}},
        {"shm": {**BIG, "engine_bytes": 4096, "engine_files": 2}},
    ),
    (
        "disk-cache",
        WARN,
        {"disks": {"cache": {"path": "/root/.cache", "free": 2 * GIB}}},
        {"disks": {"cache": {"path": "/c", "free": 20 * GIB}}},
    ),
    (
        "disk-files",
        BLOCK,
        {"disks": {"temporary files": {"path": "/tmp", "free": 1 << 20}}},
        {"disks": {"hub": {"path": "/h", "free": 1}}},
    ),
    ("nofile", WARN, {"limits": {"nofile": [1024, 4096]}}, {"limits": {"nofile": [1048576, 1048576]}}),
    ("nofile", INFO, {"limits": {"nofile": [1024, 1048576]}}, {"limits": {"nofile": [None, None]}}),
    ("memlock", INFO, {"limits": {"memlock": [8 << 20, 8 << 20]}}, {"limits": {"memlock": [None, None]}}),
    (
        "orphans",
        WARN,
        {"engines": [{"pid": 5, "start": 9, "ppid": 1, "title": "VLLM::Worker_TP3", "user": "root"}]},
        {"engines": [{"pid": 5, "start": 9, "ppid": 4, "title": "VLLM::Worker_TP3", "user": "root"}]},
    ),
]


@pytest.mark.parametrize(("id_", "severity", "place", "near"), PLACES, ids=[f"{case[0]}-{at}" for at, case in enumerate(PLACES)])
def test_the_place(id_: str, severity: str, place: dict[str, Any], near: dict[str, Any]) -> None:
    assert id_ in world.ids(judged(place), severity)
    assert id_ not in world.ids(judged(near))


def test_processes_of_a_job_that_is_known_are_no_orphans() -> None:
    place = {"engines": [{"pid": 5, "start": 9, "ppid": 1, "title": "VLLM::Worker_TP3", "user": "root"}]}
    job = JobState("j", "serve", "k25", "running", 1.0, member_pids=((5, 9),))
    assert "orphans" not in world.ids(judged(place, jobs={"j": job}))
    assert "orphans" in world.ids(judged(place, jobs={"j": job._replace(state="exited")}))


def test_a_port_that_a_job_leases_is_told_once_with_the_jobs_name() -> None:
    place = {
        "port": {"number": 8000, "taken": "port 8000 is held by pid 7 (vllm)"},
        "leases": [{"lease": "port-8000", "holder": json.dumps({"job": "k25", "operator": "anna"})}],
    }
    blocking = judged(place).of(BLOCK)
    assert [finding.id for finding in blocking] == ["lease-held"]
    assert "job k25 of anna" in blocking[0].title
    assert "pid 7" in blocking[0].evidence


CARD = {"bus": "0000:01:00.0", "path": "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0"}
FAR = {"bus": "0000:81:00.0", "path": "/sys/devices/pci0000:80/0000:80:01.1/0000:81:00.0"}
FORCED = "ForceP2P=0x11;RMForceP2PType=1"
MACHINES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("iommu-on", WARN, {"iommu": ["ivhd0"], "cmdline": "quiet"}, {"iommu": [], "cmdline": "quiet"}),
    ("iommu-pt", INFO, {"iommu": ["ivhd0"], "cmdline": "quiet iommu=pt"}, {"iommu": ["ivhd0"], "cmdline": "amd_iommu=on"}),
    (
        "acs-on",
        WARN,
        {"acs": {"bridges": 40, "readable": 40, "redirect": ["0000:00:01.1"]}},
        {"acs": {"bridges": 40, "readable": 40, "redirect": []}},
    ),
    (
        "acs-unread",
        INFO,
        {"acs": {"bridges": 40, "readable": 0, "redirect": []}},
        {"acs": {"bridges": 0, "readable": 0, "redirect": []}},
    ),
    (
        "p2p-not-loaded",
        WARN,
        {"driver": {"registry": "", "modprobe": [f'/etc/modprobe.d/n.conf: options nvidia NVreg_RegistryDwords="{FORCED}"']}},
        {"driver": {"registry": FORCED, "modprobe": [f'/etc/modprobe.d/n.conf: options nvidia NVreg_RegistryDwords="{FORCED}"']}},
    ),
    ("p2p-forced", INFO, {"driver": {"registry": FORCED}}, {"driver": {"registry": "EnableResizableBar=1"}}),
    ("hmm-on", INFO, {"hmm_disabled": False}, {"hmm_disabled": True}),
    ("governor", WARN, {"governors": {"powersave": 256}}, {"governors": {"performance": 256}}),
    ("cpus-offline", INFO, {"cpus": {"online": 255, "present": 256}}, {"cpus": {"online": 256, "present": 256}}),
    ("numa-balancing", INFO, {"numa_balancing": 1}, {"numa_balancing": 0}),
    ("swappiness", INFO, {"swappiness": 60}, {"swappiness": 0}),
    ("nccl-conf", INFO, {"nccl": {"/etc/nccl.conf": "# x\nNCCL_P2P_LEVEL=4\n"}}, {"nccl": {"/etc/nccl.conf": "# only a note\n"}}),
    ("cards-on-bus", WARN, {"cards": [CARD] * 9}, {"cards": [CARD] * 8}),
]


@pytest.mark.parametrize(("id_", "severity", "machine", "near"), MACHINES, ids=[case[0] for case in MACHINES])
def test_the_machine(id_: str, severity: str, machine: dict[str, Any], near: dict[str, Any]) -> None:
    assert id_ in world.ids(judged(machine=machine), severity)
    assert id_ not in world.ids(judged(machine=near))


def test_one_card_asks_nothing_of_the_fabric() -> None:
    bad = {"iommu": ["ivhd0"], "acs": {"bridges": 4, "readable": 4, "redirect": ["x"]}, "swappiness": 60, "hmm_disabled": False}
    found = world.ids(judged(machine=bad, tp=1))
    assert not found & {"iommu-on", "acs-on", "swappiness", "hmm-on"}


def test_pcie_allreduce_wants_the_override_where_there_is_no_common_switch() -> None:
    env = {"VLLM_ENABLE_PCIE_ALLREDUCE": "1"}
    far = {"driver": {"registry": ""}, "cards": [CARD, FAR]}
    assert "pcie-allreduce-without-p2p" in world.ids(judged(machine=far, env=env), WARN)
    assert "pcie-allreduce-without-p2p" not in world.ids(judged(machine={**far, "cards": [CARD, CARD]}, env=env))
    assert "pcie-allreduce-without-p2p" not in world.ids(judged(machine={**far, "driver": {"registry": FORCED}}, env=env))
    assert "pcie-allreduce-without-p2p" not in world.ids(judged(machine=far))


def test_links_are_judged_under_load_alone() -> None:
    assert "pcie-link" not in world.ids(judged(cards=world.board(pcie_gen=1)))
    assert "pcie-link" in world.ids(judged(cards=world.board(pcie_gen=4, util=97.0, pstate=0, mem_used=0)), WARN)
    assert "pcie-link" not in world.ids(judged(cards=world.board(pcie_gen=5, util=97.0, pstate=0, mem_used=0)))
    assert "pcie-link" not in world.ids(judged(cards=world.board(pcie_width=8)))
    assert "pcie-link" in world.ids(judged(cards=world.board(pcie_width=4)), WARN)


def test_cards_that_have_gone_and_windows_that_are_small() -> None:
    seven = world.board(7)._replace(expected=8, problem="7 of 8 cards answer")
    report = judged(cards=seven, machine={"cmdline": "quiet"}, tp=4)
    assert {"cards-missing", "aspm"} <= world.ids(report, WARN)
    assert "aspm" not in world.ids(judged(cards=seven, machine={"cmdline": "pcie_aspm=off pcie_port_pm=off"}, tp=4))
    assert "cards-missing" in world.ids(judged(expected=9), WARN)
    assert "cards-missing" not in world.ids(judged(expected=8))
    assert "bar1-small" in world.ids(judged(cards=world.board(bar1_total=256 << 20)), WARN)
    lost = world.board()
    lost = lost._replace(cards=(lost.cards[0]._replace(lost="GPU is lost"), *lost.cards[1:]))
    assert "card-lost" in world.ids(judged(cards=lost), BLOCK)


def test_who_holds_a_card_is_named() -> None:
    held = world.board(used=70 * GIB)
    process = GpuProcess(77, mem=69 * GIB, user="anna", command="python train.py")
    held = held._replace(cards=tuple(card._replace(processes=(process,)) for card in held.cards))
    finding = judged(cards=held).of(BLOCK)[0]
    assert finding.id == "card-not-free"
    assert "anna (pid 77, 69.0 GiB)" in finding.evidence
    assert "card-not-free" not in world.ids(judged(cards=held, args=["--gpu-memory-utilization", "0.2"]))


def test_sglang_wants_cards_alike() -> None:
    uneven = world.board()
    uneven = uneven._replace(cards=(uneven.cards[0]._replace(mem_used=30 * GIB), *uneven.cards[1:]))
    assert "cards-unbalanced" in world.ids(judged(cards=uneven, serves="sglang"), BLOCK)
    assert "cards-unbalanced" not in world.ids(judged(serves="sglang"))


LOADER = ("--model-loader-extra-config", '{"enable_multithread_load":true,"num_threads":119}')


def test_memory() -> None:
    tight = world.board(total=74 * GIB, used=0)
    assert "weights-tight" in world.ids(judged(cards=tight), WARN)
    assert "weights-too-big" in world.ids(judged(cards=world.board(total=60 * GIB, used=0)), BLOCK)
    assert "kv-short" in world.ids(judged(cards=world.board(total=80 * GIB, used=0), args=["--max-model-len", "262144"]), WARN)
    assert "util-range" in world.ids(judged(args=["--gpu-memory-utilization", "93"]), BLOCK)
    assert "util-range" not in world.ids(judged(args=["--gpu-memory-utilization", "0.93"]))
    big = {**TARGET, "shards": [{"name": "a", "size": 8 * GIB, "data": 8 * GIB}], "index": {"files": 1}}
    asked = world.launch({"engine": "sglang", "model": "/kimi", "tp": 8, "args": LOADER})
    for available, told in ((200 * GIB, True), (1500 * GIB, False)):
        facts = {"engine": ENGINE, "target": big, "place": {"memory": {"available": available}}}
        assert ("loader-memory" in world.ids(judge(asked, facts))) is told


def test_an_engine_for_cpus_is_judged_by_the_hosts_memory() -> None:
    engine = {"cpu": True}
    env = {"VLLM_CPU_KVCACHE_SPACE": "40"}
    small, large = {"memory": {"available": 500 * GIB}}, {"memory": {"available": 600 * GIB}}
    assert "host-memory" in world.ids(judged(small, engine=engine, env=env, cards=world.board(0)), BLOCK)
    report = judged(large, engine=engine, env=env, cards=world.board(0))
    assert not report.of(BLOCK), report.findings
    assert "no-cards" in world.ids(judged(large, cards=world.board(0)._replace(present=False)), BLOCK)


# ------------------------------------------------------------------------------------------------------------- the settings

EAGLE: dict[str, Any] = {"drafter": "/d", "k": 3}
Setting = dict[str, Any]
SETTINGS: list[tuple[str, str, Setting, Setting]] = [
    (
        "capture-small",
        WARN,
        {**EAGLE, "args": ["--max-num-seqs", "128", "--max-cudagraph-capture-size", "256"]},
        {**EAGLE, "args": ["--max-num-seqs", "128", "--max-cudagraph-capture-size", "512"]},
    ),
    ("capture-unset", INFO, {**EAGLE, "args": ["--max-num-seqs", "256"]}, {**EAGLE, "args": ["--max-num-seqs", "128"]}),
    (
        "graph-file-groups",
        BLOCK,
        {"env": {"NCCL_GRAPH_FILE": "/x.xml"}, "args": ["--decode-context-parallel-size", "4"]},
        {"env": {"NCCL_GRAPH_FILE": "/x.xml"}, "args": ["--decode-context-parallel-size", "8"]},
    ),
    (
        "graph-file-memory",
        WARN,
        {"env": {"NCCL_GRAPH_FILE": "/x.xml"}, "args": ["--gpu-memory-utilization", "0.95"]},
        {"env": {"NCCL_GRAPH_FILE": "/x.xml"}, "args": ["--gpu-memory-utilization", "0.93"]},
    ),
    (
        "util-drafter-dcp",
        WARN,
        {**EAGLE, "args": ["--gpu-memory-utilization", "0.94", "-dcp", "8"]},
        {"args": ["--gpu-memory-utilization", "0.94", "-dcp", "8"]},
    ),
    ("graph-estimate", INFO, {"env": {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "1"}}, {}),
    ("spec-disabled-above", WARN, {"env": {"VLLM_SPECULATIVE_DISABLE_ABOVE_SEQ_LEN": "4096"}}, {}),
    ("fp8-marlin", WARN, {"env": {"VLLM_TEST_FORCE_FP8_MARLIN": "1"}}, {"env": {"VLLM_TEST_FORCE_FP8_MARLIN": "0"}}),
    ("accept-threshold", WARN, {"env": {"SPEC_ACCEPT_THRESHOLD_ACC": "1e-5"}}, {}),
    ("fused-allreduce", WARN, {"env": {"RTX6K_FUSED_ALLREDUCE_ADD": "1"}}, {"env": {"RTX6K_FUSED_ALLREDUCE_ADD": "0"}}),
    ("k-above-3", WARN, {"drafter": "/d", "k": 5}, EAGLE),
    (
        "expandable-segments",
        WARN,
        {"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "VLLM_ENABLE_PCIE_ALLREDUCE": "1"}},
        {"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "VLLM_ENABLE_PCIE_ALLREDUCE": "0"}},
    ),
    (
        "allreduce-both",
        WARN,
        {"env": {"VLLM_ENABLE_PCIE_ALLREDUCE": "1"}, "args": ["--disable-custom-all-reduce"]},
        {"args": ["--disable-custom-all-reduce"]},
    ),
    ("sglang-spec-v2", WARN, {**EAGLE, "serves": "sglang", "engine": {"version": "0.5.7"}}, {**EAGLE, "serves": "sglang"}),
    ("sglang-48", INFO, {**EAGLE, "serves": "sglang"}, {**EAGLE, "serves": "sglang", "args": ["--max-running-requests", "16"]}),
    (
        "sglang-fp8-kv",
        WARN,
        {"serves": "sglang", "engine": {"version": "0.5.9"}, "args": ["--kv-cache-dtype", "fp8_e4m3"]},
        {"serves": "sglang", "engine": {"version": "0.5.9"}, "args": ["--kv-cache-dtype", "bf16"]},
    ),
    ("no-fastsafetensors", BLOCK, {"args": ["--load-format", "fastsafetensors"]}, {"args": ["--load-format", "auto"]}),
    (
        "nccl-2.26.2",
        WARN,
        {"engine": {"packages": {"nvidia-nccl-cu12": "2.26.2"}}},
        {"engine": {"packages": {"nvidia-nccl-cu12": "2.28.9"}}},
    ),
    (
        "draft-tp",
        BLOCK,
        {"args": ["-sc", '{"model":"/d","draft_tensor_parallel_size":4}']},
        {"args": ["-sc", '{"draft_tensor_parallel_size":8}']},
    ),
    (
        "spec-json",
        BLOCK,
        {"args": ["--speculative-config", "{'model': 1}"]},
        {"args": ["--speculative-config", '{"model":"/d"}']},
    ),
    (
        "spec-tp-key",
        BLOCK,
        {"args": ["-sc", '{"tensor_parallel_size":8}']},
        {"args": ["-sc", '{"draft_tensor_parallel_size":1}']},
    ),
    (
        "rejection-method",
        BLOCK,
        {"engine": {"version": "0.24.0"}, "args": ["-sc", '{"rejection_sample_method":"probabilistic"}']},
        {"args": ["-sc", '{"rejection_sample_method":"probabilistic"}']},
    ),
    (
        "sglang-eagle-not-3",
        BLOCK,
        {"drafter": "/eagle3/d", "method": "eagle", "serves": "sglang"},
        {"drafter": "/eagle3/d", "serves": "sglang"},
    ),
    ("trust-remote-code", BLOCK, {"trust": False, "engine": {"source": {"models": {}}}}, {}),
    ("trust-remote-code", WARN, {"trust": False}, {}),
    ("max-model-len", BLOCK, {"args": ["--max-model-len", "300000"]}, {"args": ["--max-model-len", "262144"]}),
]


@pytest.mark.parametrize(("id_", "severity", "bad", "near"), SETTINGS, ids=[case[0] for case in SETTINGS])
def test_a_setting_and_its_near_miss(id_: str, severity: str, bad: Setting, near: Setting) -> None:
    assert id_ in world.ids(judged(**bad), severity)
    assert id_ not in world.ids(judged(**near))


def test_advice_that_experience_contradicts_is_no_rule() -> None:
    env = {"NCCL_PROTO": "LL", "NCCL_P2P_LEVEL": "4", "NCCL_P2P_DISABLE": "1", "NCCL_MIN_NCHANNELS": "16"}
    assert world.ids(judged(env=env)) == {"kv-estimate"}


def test_some_of_sglangs_three_numbers() -> None:
    args = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/d", "--speculative-num-steps", "3"]
    assert "sglang-spec-some" in world.ids(judged(serves="sglang", args=args), BLOCK)
    assert "sglang-spec-some" not in world.ids(judged(serves="sglang", args=args[:4]))


@pytest.mark.parametrize(
    ("steps", "topk", "tokens", "too_many"),
    [(1, 2, 9, True), (1, 2, 3, False), (3, 2, 11, False), (3, 2, 12, True), (1, 1, 7, False)],
)
def test_sglangs_tree_has_to_hold_the_draft_tokens(steps: int, topk: int, tokens: int, too_many: bool) -> None:
    numbers = {"num-steps": steps, "eagle-topk": topk, "num-draft-tokens": tokens}
    words = [word for name, value in numbers.items() for word in (f"--speculative-{name}", str(value))]
    args = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/d", *words]
    assert ("sglang-spec-tokens" in world.ids(judged(serves="sglang", args=args), BLOCK)) is too_many


def test_a_check_that_meets_strange_facts_costs_no_other() -> None:
    asked = world.launch({"engine": "vllm", "model": "/kimi", "drafter": "/d", "tp": 8, "args": []})
    strange = {
        "engine": {"version": "0.17.1", "source": {"whitelist": 7, "models": []}, "options": {"declared": "many"}},
        "target": {**TARGET, "config": {"text_config": {"num_attention_heads": "64", "vocab_size": None}, "architectures": "x"}},
        "drafter": {**DRAFT, "tensors": {"fc.weight": ["BF16", "wide"]}, "config": {"eagle_config": 3, "hidden_size": [1]}},
        "place": {"port": {"number": 8000, "taken": "held"}, "shm": {"free": "much"}, "engines": [{}]},
        "machine": {"cards": [1], "cpus": {"online": "a", "present": 3}},
    }
    report = judge(asked, strange, world.board())
    assert "port-taken" in world.ids(report, BLOCK)
    assert report.unseen
    assert "not-looked-at" in world.ids(report, INFO)


def test_a_command_of_ones_own_is_asked_for_its_place_alone() -> None:
    asked = world.launch({"engine": "vllm", "model": "/nowhere", "command": ["/opt/serve.sh"], "args": []})
    facts = {"place": {"port": {"number": 8000, "taken": "held by pid 3"}}}
    assert world.ids(judge(asked, facts)) == {"port-taken"}
    facts["engine"] = {"problem": "there is no program /opt/serve.sh on this host", "absent": "/opt/serve.sh"}
    assert world.ids(judge(asked, facts)) == {"port-taken", "engine-missing"}


def test_a_model_that_is_only_in_a_container_is_not_called_absent() -> None:
    spec = {"argv": ["vllm", "serve", "/models/kimi", "--trust-remote-code"], "engine": "vllm", "port": 8000}
    absent = {"target": {"given": "/models/kimi", "path": "/models/kimi", "kind": "absent"}}
    inside = {**absent, "engine": {"where": "container", "problem": "it is inside a container image"}}
    assert "target-absent" in world.ids(judge(launch_of(spec), absent), BLOCK)
    about = {"engine": "podman", "image": "vllm", "name": "x", "program": spec["argv"]}
    asked = launch_of({**spec, "argv": ["podman", "run", "vllm"], "container": about, "runner": "podman"})
    assert asked.known
    report = judge(asked, inside)
    assert report.verdict == "clear", report.findings
    assert {"target-in-container", "engine-not-seen"} <= world.ids(report, INFO)
