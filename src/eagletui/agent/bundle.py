"""Run the agent's modules from memory: an importer over ``{module name: source}``, and the text that starts it from a file.

The client sends the modules as zlib-compressed JSON objects, one behind the other (the *blob*): first what the first samples
need, the rest right behind it with the request ``modules``. Inside a running agent that blob is `BLOB`, so that a launch can
store it (`write_blob`) and start the shim from it, with the same code and without an installation::

    [sys.executable, "-I", "-S", "-c", bundle.LOADER, path_of_blob, "eagletui.agent.shim", arg, ...]

That imports ``eagletui.agent.shim`` from the file and calls its ``main(["arg", ...])``; what `main` returns is the exit status
(None is 0). There, too, `BLOB` holds the bytes. When the modules were imported from an installation (in tests, say) `BLOB` is
empty: take ``eagletui.hosts.bootstrap.bundle()`` then.

This file is executed before any importer exists: it may import from the standard library alone.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from typing import Any, Dict, List, Optional, Set

BLOB = b""
COMPLETE = True  # False until the rest has come
MORE = ""  # the key, no module's name, that says in the first object that another follows

LOADER = (
    "import sys,zlib,json;b=open(sys.argv[1],'rb').read();z=zlib.decompressobj();d=json.loads(z.decompress(b));s={};"
    "exec(d['eagletui.agent.bundle'],s);s['start'](b,d,z.unused_data,sys.argv[2],sys.argv[3:])"
)


class Importer:
    """A finder and loader over sources in memory. Tracebacks find the lines through `get_source`."""

    def __init__(self, modules: Dict[str, str]) -> None:
        self.modules: Dict[str, str] = {}
        self._packages: Set[str] = set()
        self.extend(modules)

    def extend(self, modules: Dict[str, str]) -> None:
        self.modules.update(modules)
        self._packages.update(name.rpartition(".")[0] for name in modules)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        if name not in self.modules:
            return None
        package = name in self._packages
        file = "eagletui-bundle/" + name.replace(".", "/") + ("/__init__.py" if package else ".py")
        spec = ModuleSpec(name, self, origin=file, is_package=package)  # type: ignore[arg-type]
        spec.has_location = True
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        return None  # the default kind of module

    def exec_module(self, module: Any) -> None:
        spec = module.__spec__
        code = compile(self.modules[spec.name], spec.origin, "exec", dont_inherit=True, optimize=2)
        exec(code, module.__dict__)  # noqa: S102 - this is how a module is run

    def get_source(self, name: str) -> Optional[str]:
        return self.modules.get(name)


IMPORTER: Optional[Importer] = None


def start(blob: bytes, modules: Dict[str, str], rest: bytes, name: str, argv: List[str]) -> None:
    """Install the importer and run ``name``'s ``main(argv)``; ends the process with what it returns.

    ``modules`` is the first object of the blob, ``rest`` what lies behind it there.
    """
    awaited = modules.pop(MORE, None) is not None
    importer = Importer(modules)
    sys.meta_path.insert(0, importer)
    from eagletui.agent import bundle  # this text as a module: until now it is only text that was executed

    bundle.BLOB, bundle.COMPLETE, bundle.IMPORTER = blob, not awaited, importer
    if rest:
        bundle.BLOB = blob[: len(blob) - len(rest)]
        bundle.add(rest)
    from importlib import import_module

    sys.exit(import_module(name).main(argv))


def add(rest: bytes) -> None:
    """Take the other modules, which came later. Raises `ValueError` when they are damaged."""
    global BLOB, COMPLETE

    import json
    import zlib

    try:
        modules = json.loads(zlib.decompress(rest))
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if IMPORTER is not None:
        IMPORTER.extend(modules)
    BLOB, COMPLETE = BLOB + rest, True


def write_blob(path: str, mode: int = 0o600) -> None:
    """Store `BLOB` for `LOADER`: temp file, fsync, rename. Raises `OSError`, and `ValueError` where there is no blob."""
    import os

    if not BLOB:
        raise ValueError("these modules were not run from a blob")
    temp = "%s.%d.tmp" % (path, os.getpid())
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(BLOB)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temp, path)
    except OSError:
        os.unlink(temp)
        raise
