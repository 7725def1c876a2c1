"""What jobs that have ended left on the host: told, with the command that removes it."""

from __future__ import annotations

from eagletui import text
from eagletui.doctor.facts import Asker
from eagletui.doctor.findings import Finding
from eagletui.hosts.base import HostError

NAMED = 3


async def judge_leftovers(host: Asker) -> list[Finding]:
    """Nothing where the host cannot tell: its state directory has a finding of its own then."""
    try:
        entries = (await host.request("leftovers"))["entries"]
    except HostError as error:
        if error.retry:
            raise
        return []
    if not entries:
        return [Finding("leftovers", "ok", "nothing left of ended jobs", "in shared memory and temporary files")]
    total = sum(int(entry["size"]) for entry in entries)
    paths = [text.clean(str(entry["path"])) for entry in entries]
    more = f" and {len(paths) - NAMED:,} more" if len(paths) > NAMED else ""
    what = f"{text.size(total)} in {text.plural(len(paths), 'file')}: {', '.join(paths[:NAMED])}{more}"
    return [Finding("leftovers", "warn", "ended jobs left files behind", what, "eagletui leftovers HOST --remove")]
