"""Does a server work or hang? Told from all that shows it, not from its health page, which answers 200 in a deadlock.

Pure: `judge` names the pattern in what `signs.observe` has seen. Each pattern needs its signs to have lasted: `WATCHED` seconds
where they are clear, the stall rule of the phase where silence is all there is. What is not known never speaks for or against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from eagletui.records import JobState, Liveness
from eagletui.store import Store
from eagletui.text import duration, number, plural, rate
from eagletui.views.serving import is_alive, is_stopping
from eagletui.views.signs import BUSY, FLAT_BYTES, WATCHED, CardSigns, Observed, observe

CLEAR_SILENCE = 45.0
"""Seconds without a line where the rest is clear: vLLM itself prints a notice every 60 s in a deadlock."""
NO_TOKENS = 120.0
"""Seconds without a token, with requests running, where the cards say nothing; the longest prefill takes about a minute."""
IDLE = 5.0
"""Percent of a card below which it is idle."""
READS = 1e6
NO_CPU, HOT = 3.0, 60.0
"""Percent of one core: below the first nothing computes, above the second one process does."""
COMPUTING = ("spawn", "config", "process", "compile", "profile", "warmup", "capture", "finish")
"""Phases in which processors may be busy for minutes without a line."""
BEFORE_DATA = ("spawn", "config")
STACK = "`why` shows where its processes are"


def judge(seen: Observed) -> Liveness | None:
    """The pattern that explains what is seen, worst first; None when nothing is to be said (it loads or serves as it should)."""
    rules = _LOADING if seen.loading else _READY
    for rule in (*_ALWAYS, *rules):
        found = rule(seen)
        if found is not None:
            return found
    return None


def live(store: Store, job: JobState, now: float) -> Liveness | None:
    """`judge` of a server that runs; None for one that ends or has ended."""
    if not is_alive(job) or is_stopping(job) or job.health in ("failed", "gone"):
        return None
    return judge(observe(store, job, now))


def _stopped(seen: Observed) -> Liveness | None:
    if not seen.stopped:
        return None
    whole = seen.members is not None and seen.stopped >= seen.members
    what = "all its processes are" if whole else f"{plural(seen.stopped, 'process is', 'processes are')}"
    return Liveness(
        "stuck",
        "stopped",
        f"{what} stopped (state T): a debugger or SIGSTOP holds {'them' if whole or seen.stopped > 1 else 'it'}",
        (f"{seen.stopped} of {seen.members if seen.members is not None else '?'} processes in state T",),
        "kill -CONT lets a stopped process go on; a core dump or gdb that is attached must end first",
    )


def _blocked(seen: Observed) -> Liveness | None:
    if not seen.blocked or not _still(seen) or not _quiet_for(seen, CLEAR_SILENCE):
        return None
    return Liveness(
        "suspect",
        "blocked",
        f"{plural(seen.blocked, 'process waits', 'processes wait')} in the kernel and nothing moves: storage or driver",
        tuple(_evidence(seen)),
        f"look at dmesg and the file system of the model; such a process cannot be killed until the kernel lets go. {STACK}",
        seen.silence.seconds if seen.silence else None,
    )


def _collective(seen: Observed) -> Liveness | None:
    """All ranks wait for each other in NCCL: cards fully busy at little power, memory flat, nothing over the bus."""
    cards = seen.cards
    if len(cards) < 2 or not all(c.spins and c.flat and c.quiet for c in cards) or not _quiet_for(seen, CLEAR_SILENCE):
        return None
    return Liveness(
        "stuck",
        "nccl-deadlock",
        "the ranks wait for each other in a collective (NCCL): peer-to-peer over PCIe does not carry",
        tuple(_evidence(seen)),
        "launch with NCCL_P2P_DISABLE=1 to prove it, and --disable-custom-all-reduce if it then hangs later; the cure is"
        " iommu=off and ACS off on the host",
        seen.silence.seconds if seen.silence else None,
    )


def _one_rank(seen: Observed) -> Liveness | None:
    """One card idle, the others fully busy: its rank is dead, or in Python, and the others wait for it."""
    idle = [c for c in seen.cards if c.util <= IDLE]
    busy = [c for c in seen.cards if c.least >= BUSY]
    if not idle or not busy or len(idle) + len(busy) != len(seen.cards) or len(idle) > len(busy):
        return None
    if not all(c.flat for c in seen.cards) or not _quiet_for(seen, CLEAR_SILENCE):
        return None
    which = ", ".join(str(c.number) for c in idle)
    return Liveness(
        "stuck",
        "rank-missing",
        f"card {which} does nothing while the others wait at full use: its rank has died or hangs",
        tuple(_evidence(seen)),
        f"find the rank whose last line in the log is oldest. {STACK}",
        seen.silence.seconds if seen.silence else None,
    )


def _dead(seen: Observed) -> Liveness | None:
    """No processor, no card, no disk, no port, no line: what SGLang does after a load that lost a process."""
    if seen.cpu_most is None or seen.cpu_most >= NO_CPU or not _still(seen) or not _quiet_for(seen, CLEAR_SILENCE):
        return None
    if any(c.util > IDLE for c in seen.cards):
        return None
    if seen.phase in BEFORE_DATA:
        return Liveness(
            "suspect",
            "waits-early",
            "nothing moves, before any weight was read: it waits for something outside (hub, lock, network file system)",
            tuple(_evidence(seen)),
            f"is the model local? HF_HUB_OFFLINE=1 makes a missing file fail at once. {STACK}",
            seen.silence.seconds if seen.silence else None,
        )
    after = "after the load" if seen.phase is not None and seen.phase != "weights" else "in the load"
    port = ", and no port listens" if seen.listening is False else ""
    return Liveness(
        "stuck",
        "dead-no-port" if seen.listening is False else "dead",
        f"its processes live and do nothing {after}: no processor, no card, no disk{port}",
        tuple(_evidence(seen)),
        f"it will not come back: kill it and look at the last lines of each rank. {STACK}",
        seen.silence.seconds if seen.silence else None,
    )


def _spinning(seen: Observed) -> Liveness | None:
    """Only processors are busy, in a phase that should move data, for longer than the stall rule allows."""
    if seen.silence is None or not seen.silence.too_long or seen.cpu is None or seen.cpu < HOT:
        return None
    if _moves(seen) or seen.phase in COMPUTING:
        return None
    return Liveness(
        "suspect",
        "spinning",
        f"silent for {duration(seen.silence.seconds)}, only processors are busy: it spins, or computes",
        tuple(_evidence(seen)),
        f"a first start tunes kernels for up to ten minutes; else look where it is. {STACK}",
        seen.silence.seconds,
    )


def _silent(seen: Observed) -> Liveness | None:
    if seen.silence is None or not seen.silence.too_long:
        return None
    works = _work_words(seen)
    if works is not None:
        return Liveness("works", works[0], works[1], tuple(_evidence(seen)), None, seen.silence.seconds)
    return Liveness(
        "suspect",
        "silent",
        f"silent for {duration(seen.silence.seconds)} in a phase where that is long, and no sign of work is known",
        tuple(_evidence(seen)),
        STACK,
        seen.silence.seconds,
    )


def _slow(seen: Observed) -> Liveness | None:
    if seen.usual is None or seen.spent is None or seen.spent <= 2 * seen.usual + 30:
        return None
    return Liveness(
        "slow",
        "slow-phase",
        f"this phase has taken {duration(seen.spent)}, usually {duration(seen.usual)} here",
        tuple(_evidence(seen)),
        "the page cache may be cold, or the disk or processors shared: see what else the host does",
        seen.spent,
    )


def _useless(seen: Observed) -> Liveness | None:
    """Ready, healthy, no request, and its cards run at full use: the engine loops."""
    if seen.running or seen.waiting or seen.running is None or not seen.cards or not all(c.least >= BUSY for c in seen.cards):
        return None
    if seen.quiet is None or seen.quiet < WATCHED:
        return None
    return Liveness(
        "suspect",
        "alive-but-useless",
        "no request runs, no token comes, and its cards are fully busy: alive but useless",
        tuple(_evidence(seen)),
        "send one token to see (`why`); restart it when that does not come back",
        seen.quiet,
    )


def _no_tokens(seen: Observed) -> Liveness | None:
    """Requests run, and for a minute or two nothing is read in or generated."""
    if not seen.running or seen.busy is None or seen.quiet is None:
        return None
    lasting = min(seen.busy, seen.quiet)
    spins = bool(seen.cards) and all(c.spins for c in seen.cards)
    idle = bool(seen.cards) and all(c.util <= IDLE for c in seen.cards)
    if lasting < (WATCHED if spins or idle else NO_TOKENS):
        return None
    how = ": its cards spin at little power" if spins else ": its cards are idle" if idle else ""
    return Liveness(
        "stuck",
        "no-tokens",
        f"{plural(int(seen.running), 'request runs', 'requests run')} and no token has come for {duration(lasting)}{how}",
        tuple(_evidence(seen)),
        f"its health page may still answer: send one token to see (`why`). {STACK}",
        lasting,
    )


def _no_answer(seen: Observed) -> Liveness | None:
    if seen.silent_for is None:
        return None
    return Liveness("stuck", "no-answer", seen.silent_for, tuple(_evidence(seen)), STACK)


Rule = Callable[[Observed], Liveness | None]
_ALWAYS: tuple[Rule, ...] = (_stopped,)
_LOADING: tuple[Rule, ...] = (_collective, _one_rank, _dead, _blocked, _spinning, _silent, _slow)
_READY: tuple[Rule, ...] = (_no_answer, _no_tokens, _useless)


def _quiet_for(seen: Observed, seconds: float) -> bool:
    return seen.silence is not None and seen.silence.seconds >= seconds


def _moves(seen: Observed) -> bool:
    """Whether data moves: from the disk, over the bus, or into a card."""
    if seen.read is not None and seen.read > READS:
        return True
    return any((c.moved or 0) >= FLAT_BYTES for c in seen.cards)


def _still(seen: Observed) -> bool:
    """Whether it is known that nothing is read and no card's memory changes."""
    known = seen.read is not None or any(c.moved is not None for c in seen.cards)
    return known and not _moves(seen)


def _work_words(seen: Observed) -> tuple[str, str] | None:
    """What a silent load is at, by what moves; None when nothing shows."""
    if seen.read is not None and seen.read > READS:
        return "reading", f"silent, but it reads: {rate(seen.read)}"
    if any((c.moved or 0) >= FLAT_BYTES for c in seen.cards):
        return "filling", "silent, but its cards' memory changes"
    hot = seen.cpu is not None and seen.cpu > HOT
    if hot and seen.phase in COMPUTING:
        what = {"process": "repacks weights", "compile": "compiles", "capture": "captures graphs", "warmup": "warms up"}
        return "computing", f"silent, but processors are busy: it {what.get(seen.phase or '', 'computes')}"
    if any(c.util > IDLE and not c.spins for c in seen.cards):
        return "cards-busy", "silent, but its cards compute"
    return None


def _evidence(seen: Observed) -> Iterator[str]:
    """What was measured, as far as it is known."""
    if seen.silence is not None and seen.loading:
        yield f"no line in the log for {duration(seen.silence.seconds)}"
    if seen.phase:
        yield f"phase {seen.phase}"
    if seen.cpu is not None:
        top = f", the busiest process {number(seen.cpu_top)} %" if seen.cpu_top is not None else ""
        yield f"cpu {number(seen.cpu)} % of one core over the last minute{top}"
    if seen.read is not None:
        yield f"read {rate(seen.read)}"
    if seen.cards:
        yield "cards: " + "; ".join(_card_words(card) for card in seen.cards[:8])
    if seen.listening is not None and seen.port is not None and seen.loading:
        yield f"port {seen.port} {'listens' if seen.listening else 'does not listen'}"
    if seen.running is not None and not seen.loading:
        yield f"{number(seen.running)} running, {number(seen.waiting or 0)} waiting"
    if seen.quiet is not None and not seen.loading:
        yield f"no token in or out for {duration(seen.quiet)}"
    if seen.blocked:
        yield f"{plural(seen.blocked, 'process', 'processes')} in state D"


def _card_words(card: CardSigns) -> str:
    words = f"{card.number} at {card.util:.0f} %"
    if card.power is not None:
        words += f" {card.power:.0f} W"
    if card.moved is not None:
        words += " memory flat" if card.flat else " memory moves"
    if card.link is not None:
        words += f" bus {rate(card.link)}"
    return words
