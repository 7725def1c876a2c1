"""Whether the memory of a server's cards has come back after its end, as nvidia-smi tells it: a full card loads no model."""

from __future__ import annotations

from typing import Dict, List, Mapping, Sequence

from eagletui.agent.loop import Loop
from eagletui.agent.tool import Said, Tool

PATIENCE = 120.0
SLACK = 512
"""MiB that a card may hold more than before: the driver's own, which it does not give back at once."""
_ARGV = ("nvidia-smi", "--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits")


def used(loop: Loop, cards: Sequence[str]) -> Dict[str, int]:
    """{uuid: MiB in use now} of these cards; empty where nvidia-smi cannot be asked. Runs the loop until it has answered."""
    if not cards:
        return {}
    answers: List[Said] = []

    def done(said: Said) -> None:
        answers.append(said)
        loop.stop()

    Tool(loop, _ARGV, done, 30.0)
    while not answers:
        loop.run()
    out = {}
    for line in answers[0].out.splitlines() if answers[0].ok else ():
        uuid, _, number = (part.strip() for part in line.partition(","))
        if uuid in cards and number.isdigit():
            out[uuid] = int(number)
    return out


def held(before: Mapping[str, int], now: Mapping[str, int]) -> List[str]:
    """One line for each card that still holds more than it did before the server; empty when all of it is back."""
    return [
        "card %s holds %.1f GiB more than before" % (uuid, (now[uuid] - before[uuid]) / 1024)
        for uuid in sorted(before)
        if uuid in now and now[uuid] - before[uuid] > SLACK
    ]
