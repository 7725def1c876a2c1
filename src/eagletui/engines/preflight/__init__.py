"""What would stop a launch, judged on gathered facts: pure functions, no I/O.

`request` says what to gather for a launch, `judge.judge` turns the facts that came back into findings. Each check is one small
function in a module of its subject (``engine``, ``target``, ``drafter``, ``checkpoint``, ``memory``, ``place``, ``machine``,
``rules``); ``vllm_source`` and ``sglang_source`` read what an installed engine can do out of its source text.
"""
