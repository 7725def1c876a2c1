"""Remembering what worked: the profile of a server that has become ready, kept as the last good one of its name on its host."""

from __future__ import annotations

from dataclasses import replace

from eagletui.jobs.base import redact_argv
from eagletui.jobs.hidden import key_by_environment
from eagletui.profile_launch import command_of
from eagletui.profiles import Profile, last_good, load_profiles, remember_good
from eagletui.records import JobState


def remember(place: str, job: JobState, launched: Profile | None) -> None:
    """Keep the profile of the ready ``job`` on the host ``place``. Reads and writes files; raises `OSError`.

    ``launched`` is the profile when the job was launched from here; else the one of its name counts, if it still gives the
    very command that runs.
    """
    profile = launched or _unchanged(place, job)
    if profile is not None and last_good(place, profile.name) != profile:
        remember_good(place, profile)


def _unchanged(place: str, job: JobState) -> Profile | None:
    profile = load_profiles(place)[0].get(job.profile or "")
    if profile is None:
        return None
    try:
        # which cards were chosen stands in the environment, not in the command
        command = command_of(replace(profile, gpus=None))
    except ValueError:
        return None  # it gives no command any more: it was changed since
    argv = key_by_environment(profile.engine, command.argv, {})
    return profile if tuple(redact_argv(argv)) == job.command else None
