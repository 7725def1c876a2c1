"""Build from source: look for all that it needs, bound the jobs by memory, run the build, and see whether what it made works.

``python -m eagletui.jobs.on_host.build JSON -- COMMAND ...``. The build's output is this program's own; ends with 0 when what had
to come of it is there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import Any, Dict, List, Mapping, Optional, Sequence

from eagletui.jobs.on_host.telling import Teller

GIB = 1 << 30
IMPORT_SECONDS = 300
_PACKAGES = {
    "ninja": "pip install ninja, or apt-get install ninja-build",
    "cmake": "pip install cmake, or apt-get install cmake",
    "c++": "apt-get install g++",
    "g++": "apt-get install g++",
    "gcc": "apt-get install gcc",
    "nvcc": "install the CUDA toolkit and put its bin into PATH in [env] (the driver alone has no nvcc)",
    "numa.h": "apt-get install libnuma-dev",
    "scikit_build_core": "pip install scikit-build-core",
}
_IMPORT = (
    "import importlib,json,sys\nm=importlib.import_module(sys.argv[1])\n"
    "print(json.dumps([getattr(m,'__file__',None),str(getattr(m,'__version__','') or '')]))"
)


def main(argv: Optional[List[str]] = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    wanted: Dict[str, Any] = json.loads(words[0])
    command = words[words.index("--") + 1 :]
    teller = Teller("steps")
    teller.stage("looking for what it needs")
    source = wanted["source"]
    lacking = missing(wanted, source)
    if lacking:
        teller.result(why="not begun: " + "; ".join(lacking), checked=True)
        return 1
    jobs = jobs_at_a_time(wanted["gib"], wanted.get("jobs"))
    room = available()
    teller.note(
        "%d job%s at a time: %.1f GiB of memory are free, %g each" % (jobs, "" if jobs == 1 else "s", room / GIB, wanted["gib"])
    )
    teller.stage("building")
    began = time.monotonic()
    status = subprocess.run(command, cwd=source, env=environment(os.environ, jobs), check=False).returncode
    facts: Dict[str, Any] = {"path": source, "jobs": jobs, "seconds": round(time.monotonic() - began, 1)}
    if status != 0:
        how = "signal %d" % -status if status < 0 else "status %d" % status
        teller.result(why="the build ended with %s" % how, **facts)
        return 1
    teller.stage("checking")
    why, made = verified(wanted, source)
    if why is not None:
        teller.result(why="the build ended well, but %s" % why, checked=True, **facts)
        return 1
    teller.result(why="; ".join(made), made=made, **facts)
    return 0


def missing(wanted: Mapping[str, Any], source: str) -> List[str]:
    """What is not there of all that the build needs, each with what to do."""
    out = [] if os.path.isdir(source) else ["%s is no directory" % source]
    # programs of the environment are found as pip's build finds them
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
    for name in wanted.get("programs") or ():
        if shutil.which(name, path=path) is None:
            out.append("there is no %s (%s)" % (name, _PACKAGES.get(name, "install it, or put its directory into PATH in [env]")))
    for name in wanted.get("modules") or ():
        if not _has(name):
            out.append(
                "%s has no module %s (%s)" % (sys.executable, name, _PACKAGES.get(name, "pip install " + name.replace("_", "-")))
            )
    compiler = next((found for found in (shutil.which(name) for name in ("c++", "cc", "g++", "gcc", "clang")) if found), None)
    for name in wanted.get("headers") or ():
        if compiler is None:
            out.append("without a compiler the header %s cannot be looked for" % name)
        elif not _compiles(compiler, name):
            out.append(
                "the header %s is not found (%s)" % (name, _PACKAGES.get(name, "install its -dev package, or set CPATH in [env]"))
            )
    return out


def _has(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False  # a package above it is missing, or broken


def _compiles(compiler: str, header: str) -> bool:
    flags = ["-I%s/include" % home for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    done = subprocess.run(
        [compiler, "-E", "-x", "c++" if compiler.endswith("+") else "c", *flags, "-"],
        input=b"#include <%s>\n" % header.encode(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode == 0


def jobs_at_a_time(gib: float, most: Optional[int]) -> int:
    """As many as there are cores for us, as memory goes, and as were asked for; at least one."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(most or cores, cores, int(available() / (gib * GIB))))


def available() -> int:
    """Bytes of memory that may still be taken here: the machine's, or less where a control group says so."""
    room = 1 << 62
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                room = int(line.split()[1]) * 1024
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            with open(limit, encoding="ascii") as top, open(used, encoding="ascii") as now:
                room = min(room, max(0, int(top.read()) - int(now.read())))
        except (OSError, ValueError):
            continue  # no such group, or no limit ("max")
    return room


def environment(env: Mapping[str, str], jobs: int) -> Dict[str, str]:
    """The build's own: the number of jobs in every form that build systems read, unless the job file has set one of them."""
    out = {name: value for name, value in env.items() if name != "PYTHONPATH"}
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    left = [part for part in env.get("PYTHONPATH", "").split(os.pathsep) if part and os.path.abspath(part) != ours]
    if left:
        out["PYTHONPATH"] = os.pathsep.join(left)
    out["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), env.get("PATH", "")))
    for name in ("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL", "CARGO_BUILD_JOBS"):
        out.setdefault(name, str(jobs))
    out.setdefault("MAKEFLAGS", "-j%d" % jobs)
    out.setdefault("NVCC_THREADS", "1")
    return out


def verified(wanted: Mapping[str, Any], source: str) -> Any:
    """(why the result is not right or None, what is there, in words)."""
    made: List[str] = []
    lost = [path for path in wanted.get("expect") or () if not os.path.exists(os.path.join(source, path))]
    if lost:
        return "%s is not there" % ", ".join(lost[:3]), made
    if wanted.get("expect"):
        made.append("%d expected file%s there" % (len(wanted["expect"]), "" if len(wanted["expect"]) == 1 else "s"))
    for name in wanted.get("imports") or ():
        why, words = _imported([sys.executable, "-c", _IMPORT, name])
        if why is not None:
            return "%s cannot be imported: %s" % (name, why), made
        made.append("%s %s" % (name, words))
    return None, made


def _imported(argv: Sequence[str]) -> Any:
    env = environment(os.environ, 1)
    try:
        done = subprocess.run(
            argv, cwd="/", env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=IMPORT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "it takes more than %d s" % IMPORT_SECONDS, ""
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return (lines[-1] if lines else "status %d" % done.returncode)[:300], ""
    file, version = json.loads(done.stdout.decode("utf-8", "replace").strip().splitlines()[-1])
    return None, ("%s imports from %s" % (version, file)).strip()


if __name__ == "__main__":
    sys.exit(main())
