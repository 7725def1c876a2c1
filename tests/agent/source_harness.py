"""Runs one telemetry source around a real loop, in a process of its own and under any Python from 3.8 on.

Arguments: ``module:Class`` and a JSON object of `timing` overrides. Each published document goes to stdout as a JSON line, and
so do ``{"need": module}`` and ``{"error": text}``; stdin takes JSON lines: ``{"start": [interval, params]}``,
``{"provide": path}``, ``{"stop": 1}``. Ends at the end of stdin.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

from eagletui.agent.loop import Loop
from eagletui.agent.source import Context


def main() -> None:
    def say(doc):
        data = (json.dumps(doc) + "\n").encode()
        while data:
            data = data[os.write(1, data) :]

    loop = Loop(lambda what, error: say({"error": f"{what}: {error!r}"}))
    module, _, name = sys.argv[1].partition(":")
    source = getattr(import_module(module), name)(
        Context(loop, say, lambda wanted: say({"need": wanted}), lambda text: say({"log": text}))
    )
    overrides = json.loads(sys.argv[2])
    if overrides:
        source.timing = source.timing._replace(**{k: tuple(v) if isinstance(v, list) else v for k, v in overrides.items()})
    buffer = b""

    def readable() -> None:
        nonlocal buffer
        data = os.read(0, 65536)
        if not data:
            source.stop()
            loop.stop()
            return
        buffer += data
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            command = json.loads(line.decode())
            if "start" in command:
                source.start(*command["start"])
            if "stop" in command:
                source.stop()
            if "provide" in command:
                with open(command["provide"], "rb") as file:
                    source.provided("pynvml", file.read())

    loop.add_reader(0, readable)
    loop.run()


main()
