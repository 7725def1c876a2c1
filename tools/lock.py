"""Write requirements.lock (the client, and what builds it) and requirements-dev.lock (what the tests need on top).

Resolves from nothing with pip, so that what is installed here now does not leak into the result.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# exact versions of {what}; written by `make lock`, do not edit\n"


def resolve(requirements: list[str]) -> dict[str, str]:
    """Name -> version of everything that installing ``requirements`` into an empty environment would bring."""
    command = [sys.executable, "-m", "pip", "install", "-qq", "--dry-run", "--ignore-installed", "--report", "-", *requirements]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower(): item["metadata"]["version"] for item in report["install"]}


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    client = project["project"]["dependencies"] + project["build-system"]["requires"] + ["editables>=0.5"]
    dev = project["project"]["optional-dependencies"]["dev"]
    everything = resolve(client + dev)
    names = resolve(client).keys()
    for name, what, chosen in (
        ("requirements.lock", "the client and its build backend", {k: v for k, v in everything.items() if k in names}),
        ("requirements-dev.lock", "what tests and checks need on top", {k: v for k, v in everything.items() if k not in names}),
    ):
        lines = "".join(f"{package}=={version}\n" for package, version in sorted(chosen.items()))
        (ROOT / name).write_text(HEADER.format(what=what) + lines)
        print(f"{name}: {len(chosen)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
