"""Where things lie on this machine: the package's assets, the user's configuration, our state (crash logs, memory of hosts)."""

from __future__ import annotations

import os
from pathlib import Path


def assets_path(*parts: str) -> Path:
    """A file or folder of the package's assets, in an installed wheel as well as in an editable install.

    In a wheel the assets lie beside the modules; in a checkout at the root, two levels above ``src/eagletui``.
    """
    here = Path(__file__).resolve().parent
    packaged = here / "assets"
    root = packaged if packaged.is_dir() else here.parent.parent / "assets"
    return root.joinpath(*parts)


def _xdg(variable: str, fallback: str) -> Path:
    # the XDG specification: a value that is not absolute is invalid and to be ignored
    value = os.environ.get(variable, "")
    return (Path(value) if os.path.isabs(value) else Path.home() / fallback) / "eagletui"


def config_dir() -> Path:
    """``$XDG_CONFIG_HOME/eagletui``, by default ``~/.config/eagletui``. Not created here."""
    return _xdg("XDG_CONFIG_HOME", ".config")


def state_dir() -> Path:
    """``$XDG_STATE_HOME/eagletui``, by default ``~/.local/state/eagletui``. Not created here."""
    return _xdg("XDG_STATE_HOME", ".local/state")
