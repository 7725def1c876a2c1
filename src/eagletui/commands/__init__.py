"""What can be done with a host: one function each, used by the keys of the dashboard and by the command line.

Every function takes a `Desk`. Those that change something on the host refuse a read-only desk with a `HostError`; every
failure is a `HostError`, told in one line.
"""

from eagletui.commands.desk import Desk, acknowledge, ask_with, connector, may_change, open_desk, retry, settings_for, warn
from eagletui.commands.jobs import LaunchPlan, last_good, launch, plan_launch, profiles, save_profile, wait_ready
from eagletui.commands.kills import end_job, hurry, kill, kill_plan, pids_id, remove_job
from eagletui.hosts.base import Prompter

__all__ = [
    "Desk",
    "LaunchPlan",
    "Prompter",
    "acknowledge",
    "ask_with",
    "connector",
    "end_job",
    "hurry",
    "kill",
    "kill_plan",
    "last_good",
    "launch",
    "may_change",
    "open_desk",
    "pids_id",
    "plan_launch",
    "profiles",
    "remove_job",
    "retry",
    "save_profile",
    "settings_for",
    "wait_ready",
    "warn",
]
