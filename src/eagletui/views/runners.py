"""How a job runs on its host, in words."""

from __future__ import annotations

from eagletui.records import JobState

RUNNERS = {
    "system-unit": "a systemd unit of the host",
    "user-unit": "a systemd unit of the user's own manager",
    "process": "a process of its own session",
    "docker": "a docker container",
    "podman": "a podman container",
}


def runs_as(job: JobState) -> str:
    """``a systemd unit of the host, eagletui-k25.service``; empty when that is not known."""
    return ", ".join(filter(None, (RUNNERS.get(job.runner or "", job.runner), job.unit)))
