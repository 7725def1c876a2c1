"""Lines that are known to be harmless chatter, so that a log view may hide them.

Progress and errors are never noise: `is_noise` says False for anything that looks like a progress bar, a weight or graph
line, an exception or an error, whatever else is in it.
"""

from __future__ import annotations

import re

_NEVER = re.compile(
    r"\d%|\d/\d+ \[|it/s\]|s/it\]|Traceback|\bError\b|[a-z]Error\b|Exception\b|\bfailed\b|FAILED|CUDA error|"
    r"out of memory|Killed|Segmentation|Load weight|Loading|Captur"
)

# the first group names Python's own warnings and what follows them; the others are lines of the engines and their libraries
_NOISE = re.compile(
    r"FutureWarning|DeprecationWarning|UserWarning|RuntimeWarning: Mean|PendingDeprecationWarning|SyntaxWarning|frozen importlib|"
    r"^\s+warnings\.warn\(|^  import pynvml|"
    r"^Triton is installed, but|Triton is not installed\.|Triton is not supported on current platform|"
    r"libtcmalloc is not found|libiomp is not found|without Intel OpenMP in LD_PRELOAD|"
    r"Unknown vLLM environment variable detected|Found ulimit of|Fail to set RLIMIT_NOFILE|"
    r"SymmMemCommunicator: Device capability|Custom allreduce is disabled|Reducing Torch (?:threads|parallelism)|"
    r"Using default MoE (?:config|kernel config)|Checkpoint does not provide a q scaling|Using KV cache scaling factor|"
    r"Flashinfer allreduce fusion is not supported|AllReduce fusion pass is disabled|Final IR op priority|"
    r"The following generation flags are not valid|min_p and logit_bias parameters|Model Runner V2 requires|"
    r"Reset SSM cache type|Inductor compilation was disabled by user|CUDA graph memory profiling is disabled|"
    r"Max running requests is reset to|Ignore import error when loading|is not initialized, using|"
    r"^Route: /|Available routes are|nanobind: |^ - leaked |^ - \.\.\. skipped|refleaks\.html$|"
    r"resource_tracker: There appear to be|resource_tracker\.py:\d+|Warning: NUMA binding|"
    r"The hostname of the client socket cannot be retrieved|JIT compilation during inference|"
    r"Registering \d+ cuda graph addresses|^\[Gloo\] Rank|\"GET /(?:health|metrics|v1/models|ping)\b[^\"]*\" 200|"
    r"\"GET /metrics\b[^\"]*\" 404|\"GET /health(?:_generate)?\b[^\"]*\" (?:200|503)|"
    # rows of vLLM's logo; the one with the version and the one with the model have words as well
    r"^[\s\u2580-\u259f]*[\u2580-\u259f]\s*$"
)


def is_noise(text: str) -> bool:
    """Whether the message ``text`` (without its header) is known chatter."""
    return _NOISE.search(text) is not None and _NEVER.search(text) is None
