"""What can be done with a host: one function each, used by the keys of the dashboard and by the command line.

Every function takes a `Desk`. Those that change something on the host refuse a read-only desk with a `HostError`; every
failure is a `HostError`, told in one line.
"""

from eagletui.commands.desk import Desk, acknowledge, connector, may_change, open_desk, retry, settings_for, warn
from eagletui.commands.jobs import (
    LaunchPlan,
    end_job,
    hurry,
    kill,
    kill_plan,
    last_good,
    launch,
    plan_launch,
    profiles,
    remove_job,
    save_profile,
    wait_ready,
)

__all__ = [
    "Desk",
    "LaunchPlan",
    "acknowledge",
    "connector",
    "end_job",
    "hurry",
    "kill",
    "kill_plan",
    "last_good",
    "launch",
    "may_change",
    "open_desk",
    "plan_launch",
    "profiles",
    "remove_job",
    "retry",
    "save_profile",
    "settings_for",
    "wait_ready",
    "warn",
]
