"""A client that can be stopped as a laptop is: connects, follows the host, prints each state and push as JSON. Tests only."""

from __future__ import annotations

import asyncio
import json
import sys

from eagletui.hosts.session import Session
from eagletui.hosts.ssh import connector
from eagletui.hosts.target import parse_target


def tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


async def main(target: str) -> None:
    session = Session(connector(parse_target(target)), lambda state: tell(state=state.state, why=state.why))
    await session.open()
    tell(agent=session.info.agent_pid)
    await session.subscribe("host", 0.5, lambda push: tell(push=push.number, boot=push.boot, agent=session.info.agent_pid))
    await asyncio.Event().wait()


asyncio.run(main(sys.argv[1]))
