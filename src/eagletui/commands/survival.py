"""How a job will run on the host, and what would end it although nobody asked: told before the launch."""

from __future__ import annotations

from typing import NamedTuple

from eagletui.commands.desk import Desk
from eagletui.hosts.base import HostError
from eagletui.views.runners import RUNNERS


class Prospect(NamedTuple):
    """``runs_as`` in words, empty when the host did not say; ``warnings`` as a launch plan has them."""

    runs_as: str = ""
    warnings: tuple[str, ...] = ()


async def prospect(desk: Desk) -> Prospect:
    """Asks the host. Nothing is raised: a plan is worth showing without this, and the job itself says it again."""
    try:
        doc = await desk.session.request("survival")
    except HostError as error:
        return Prospect("", (f"how it would run is not known: {error.why}",))
    warnings = [str(doc["survival"])] if doc.get("survival") else []
    return Prospect(RUNNERS.get(str(doc.get("runner")), ""), (*warnings, *(str(text) for text in doc.get("limits") or ())))
