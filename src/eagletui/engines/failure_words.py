"""The words by which a failure is recognised in a log, whatever its cause: exceptions, wrappers, how processes end.

`suspects` finds the places in a piece of log where one of them stands; a line without any of them can tell of no failure, except
within a traceback that is open.
"""

from __future__ import annotations

import re
from typing import List, Tuple

EXCEPTION = re.compile(
    rb"^(?:[A-Za-z_]\w*\.)*_?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure|Timeout|Warning|Group|Cancelled)?(?:: |$)"
)
NAMED = re.compile(
    rb"^(?:[A-Za-z_]\w*\.)*_?(?:[A-Z]\w*)?(?:Error|Exception|Interrupt|Exit|Timeout|NVMLError_\w+|OutOfResources)(?:: |$)"
)
FRAME = re.compile(rb'^ +File "[^"]*", line \d+, in (\S+)')
USAGE = re.compile(
    rb"^(?:vllm|sglang|usage|[\w./-]+\.py)(?: [\w-]+)?: error: |^error: (?:argument|unrecognized|the following)"
    rb"|^\S*(?:python[\d.]*|pypy[\d.]*): (?:No module named|can't open file|can't find|Error while finding module)"
    rb"|^\S*(?:sh|bash|zsh|env|exec|nohup|setsid|timeout): (?!warning: ).{0,200}"
    rb"(?:not found|No such file or directory|Permission denied)$"
    rb"|^error: subprocess-exited-with-error|^ERROR: (?:Failed building wheel|Failed to build|Could not build wheels"
    rb"|No matching distribution|ResolutionImpossible|Cannot install )"
    rb"|^ninja: build stopped|^FAILED: |^CMake Error"
)
DIED = re.compile(
    rb"^(?:\S+: )?(?:line \d+: +\d+ )?(?:Killed\b|Segmentation fault|Bus error|Aborted(?: \(core dumped\))?$|Fatal Python error: "
    rb"|terminate called after throwing|Illegal instruction|Floating point exception)"
    rb"|(?:Out of memory|Memory cgroup out of memory): Killed process|\bNVRM: Xid \(|oom-kill:"
)

# an exception with one of these texts reports another one
WRAPPERS = (
    b"initialization failed due to an exception in a background process",
    b"Engine core initialization failed",
    b"EngineCore encountered a",
    b"EngineDeadError",
    b"See stack trace for root cause",
    b"See stack trace above for root cause",
    b"See root cause above",
    b"check the stack trace above for the root cause",
    b"Worker failed with error",
    b"Engine process failed to start",
    b"EngineCore failed to start",
    b"Engine loop is not running",
    b"Please see the above error",
)
# these follow when another process of the launch has died
SECONDARY = re.compile(
    rb"^(?:\w+\.)*(?:BrokenPipeError|ConnectionResetError|ConnectionRefusedError|EOFError|CancelledError|SystemExit|"
    rb"ProcessRaisedException|ProcessExitedException|ChildFailedError|QueueEmpty|Empty|RuntimeError: cancelled|"
    rb"(?:\w+\.)*\w+: .*(?:Connection closed by peer|Connection reset by peer|Broken pipe|remote process has terminated|"
    rb"socket has likely been closed))"
)
INTERRUPT = re.compile(rb"^KeyboardInterrupt(?::|$)")
TOP_LEVEL = (
    b"<module>",
    b"_bootstrap",
    b"_run_module_as_main",
    b"run_engine_core",
    b"worker_main",
    b"run_scheduler_process",
    b"run_mp_engine",
)

# what an engine says when it gives up; the text may be in an error record, a wrapper's exception or a plain line
FATAL = (
    b"EngineCore failed to start",
    b"Engine core initialization failed",
    b"initialization failed due to an exception in a background process",
    b"WorkerProc failed to start",
    b"EngineCore encountered a fatal error",
    b"EngineCore encountered an issue",
    b"EngineCore hit an exception",
    b"Engine background task failed",
    b"Engine process failed to start",
    b"died unexpectedly",
    b"engine core exited unexpectedly",
    b"hit an exception: ",
    b"Received sigquit from a child process",
    b"Initialization failed. warmup error",
    b"error while attempting to bind on address",
    b"Port is already in use",
    b"port is already in use",
    b"scheduler died",
    b"Watchdog caught collective operation timeout",
    b"watchdog timeout",
    b"unexpectedly failed with",
    b"Triggering SIGQUIT for cleanup",
    b"It usually means one child failed",
    b"Server process terminated unexpectedly",
    b"Could not load any common_ops library",
)
GAVE_UP = re.compile(b"|".join(re.escape(mark) for mark in FATAL))
# these say themselves why: no other line is needed
OWN_CAUSE = re.compile(rb"error while attempting to bind|ort is already in use|atchdog (?:caught|timeout)|common_ops library")

# logged with a traceback, and the engine goes on without it
HARMLESS = (
    b"JIT kernel warmup failed",
    b"Exception in ASGI application",
    b"Error in handling request",
    b"usage stats",
    b"Error in preprocessing prompt",
    b"Invocation of ",
    b"Failed to import from",
    b"Failed to load plugin",
    b"Ignore import error",
)
# lines of a healthy start that speak of errors
IGNORED = (b"Ignore import error", b"NCCL INFO", b"Exception ignored in")

TRACE = b"Traceback (most recent call last):"
CHAINED = (b"During handling of the above exception", b"The above exception was the direct cause")
WITHIN = (*CHAINED, b"[Previous line repeated")

# without one of these a line can tell of no failure, except within a traceback that is open. Each costs a search through all of
# the log, so they are few: what always stands at the start of a line, or only before an engine has begun, is looked for apart
WORDS = (
    b"rror",
    b"xception",
    b"ailed",
    b"raceback",
    b"nterrupt",
    b"died",
    b"atchdog",
    b"Killed",
    b"core dumped",
    b"NCCL WARN",
    b"NVRM: Xid",
    b"xited unexp",
)
STARTS = frozenset((b"Segm", b"Bus ", b"Abor", b"Ille", b"term", b"ninj", b"CMak", b"FAIL", b"ERRO", b"nvcc", b"oom-"))
EARLY_WORDS = (b"not found", b"No such", b"No module", b"cannot find")


def suspects(data: bytes, words: Tuple[bytes, ...] = WORDS) -> List[int]:
    """Where in a piece of log one of the words stands, in order: several times faster than asking line by line."""
    found: List[int] = []
    for word in words:
        at = data.find(word)
        while at >= 0:
            found.append(at)
            at = data.find(word, at + 1)
    found.sort()
    return found


def suspicious(line: bytes, early: bool = True) -> bool:
    """Whether a line may tell of a failure; ``early``: no engine has said anything yet."""
    for word in WORDS:
        if word in line:
            return True
    if line[:4] in STARTS:
        return True
    return early and any(word in line for word in EARLY_WORDS)
