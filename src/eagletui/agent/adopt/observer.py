"""All servers that were found, while the jobs of the host are watched: looked for, followed, and kept a while once ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Collection, Dict, Iterator, List, Mapping, Optional, Tuple

from eagletui.agent import adopt
from eagletui.agent.adopt.found import Found, found_of
from eagletui.agent.adopt.ours import Ours, shim_directory
from eagletui.agent.loop import Loop, Timer
from eagletui.agent.procfs import Stat

if TYPE_CHECKING:
    from eagletui.agent.adopt.watched import Watched

LOOK_EVERY, LOADING_EVERY = 15.0, 5.0
"""Seconds between two looks at all processes; while a server loads it gets new ones."""
_LOOKING = "looking for servers among all processes"
KEPT = 600.0
"""Seconds that a server which has ended stays in the table."""


class Observer:
    """``root`` is our state directory; ``on_first`` is called once the first look is complete. `stop` ends all children.

    ``problems``: {what went wrong at the last look: why}. A failure here hurts neither our own jobs nor other servers.
    """

    def __init__(self, loop: Loop, root: str, log: Callable[[str], None]) -> None:
        self._loop, self._root, self._log = loop, root, log
        self._finder = adopt.shared_finder()
        self._watched: Dict[str, Watched] = {}
        self._jobs: Mapping[str, Mapping[str, Any]] = {}
        self._turns: Optional[Iterator[None]] = None
        self._timer: Optional[Timer] = None
        self._due = float("-inf")
        self._asked = self._finder.asked
        self.complete = False
        self.problems: Dict[str, str] = {}
        self.on_first: Callable[[], None] = lambda: None

    def look(self, jobs: Mapping[str, Mapping[str, Any]], ending: Collection[str] = ()) -> Dict[str, Dict[str, Any]]:
        """A turn: {id: `JobState` document} of what was found. ``jobs`` are eagletui's own, which must not come twice; ``ending``
        the ids of those that somebody ends with eagletui just now."""
        self._jobs = jobs
        now = self._loop.now()
        for one in list(self._watched.values()):
            one.asked_to_end(one.found.id in ending)
            self._try("looking at the server %s" % one.found.id, lambda w=one: w.tick(now))  # type: ignore[misc]
            if one.died:
                self._due = now  # not at the next look: whoever has just ended it wants to see that
            if one.over is not None and now - one.over > KEPT:
                self._forget(one.found.id)
        if self._finder.asked != self._asked:
            self._asked, self._due = self._finder.asked, now  # something was started or ended here: whoever did that awaits it
        if self._turns is None and now >= self._due:
            self._turns = self._finder.turns()
            self._step(True)
        return {name: one.document() for name, one in self._watched.items()}

    def _step(self, at_once: bool = False) -> None:
        """A slice of the look at all processes; the loop has its turn between two."""
        self._timer = None
        if self._turns is None:
            return
        if self._try(_LOOKING, self._look_on):
            self._timer = self._loop.call_later(0, self._step)
            return
        self._turns = None
        if _LOOKING not in self.problems:
            self._try(_LOOKING, self._sort_out)
        loading = any(one.loading for one in self._watched.values())
        self._due = self._loop.now() + (min(LOADING_EVERY, LOOK_EVERY) if loading else LOOK_EVERY)
        if not self.complete:
            self.complete = True
            if not at_once:
                self.on_first()

    def _look_on(self) -> bool:
        """One slice. False when the look is over."""
        assert self._turns is not None
        for _ in self._turns:
            return True
        return False

    def _try(self, what: str, work: Callable[[], Optional[bool]]) -> bool:
        """Do it; a failure is told to whoever watches, and with its traceback to the debug log."""
        came: List[Optional[bool]] = []

        def noted() -> None:
            try:
                came.append(work())
                self.problems.pop(what, None)
            except Exception as error:
                self.problems[what] = "%s: %s" % (type(error).__name__, error)
                raise

        self._loop.guard(what, noted)
        return bool(came and came[0])

    def _sort_out(self) -> None:
        ours = Ours(self._root, self._jobs.values())
        seen: List[str] = []
        for group in self._finder.groups():
            found = found_of(group)
            if ours.holds(group, found.holder):
                continue
            seen.append(found.id)
            known = self._watched.get(found.id)
            if known is None or known.over is not None:
                if known is not None:
                    known.close()
                self._watched[found.id] = self._new(found, group.chain)
                directory = shim_directory(group)
                if directory is not None:
                    self._watched[found.id].note("a job of another eagletui (%s)" % directory)
            else:
                known.renew(found, group.chain)
        for name, one in list(self._watched.items()):
            if name in seen or one.over is not None:
                continue
            if any(ours.knows(key) for key in one.found.members):
                self._forget(name)  # it has turned out to be a job of ours
            else:
                one.ended()

    def _forget(self, name: str) -> None:
        self._watched.pop(name).close()
        self.problems.pop("looking at the server %s" % name, None)

    def _new(self, found: Found, chain: Tuple[Stat, ...]) -> "Watched":
        from eagletui.agent.adopt.watched import Watched  # grammar, probe and logs: most hosts have no such server

        return Watched(self._loop, found, chain, self._log)

    def stop(self) -> None:
        """Nobody looks any more: nothing is sampled, no child is left."""
        if self._timer is not None:
            self._timer.cancel()
        self._turns = None
        for one in self._watched.values():
            one.close()
        self._watched.clear()
