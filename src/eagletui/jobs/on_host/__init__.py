"""Programs of ours that run on the host under an engine's python: ``PYTHON -m eagletui.jobs.on_host.NAME``."""
