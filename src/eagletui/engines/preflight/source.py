"""Reading Python source as text, tolerant of versions: the classes of a file, their bases, and where a base comes from.

Engines are written for newer Pythons than the host's own, so nothing is parsed as a syntax tree. ``read`` gives the text of a
file of the engine's package by its path there, or None.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, List, NamedTuple, Optional

Read = Callable[[str], Optional[str]]
ListDir = Callable[[str], List[str]]

_CLASS = re.compile(r"^class (\w+)\s*(?:\(([^)]*)\))?:", re.MULTILINE)
_IMPORT = re.compile(r"^from (\.*[\w.]*) import (?:\(([^)]*)\)|([^\n(]+))", re.MULTILINE)


class Class(NamedTuple):
    """A class in a source text: the names of its bases, and its body as text."""

    name: str
    bases: List[str]
    body: str


def classes(text: str) -> Dict[str, Class]:
    """The classes at the top level of a text, by name."""
    found: Dict[str, Class] = {}
    for match in _CLASS.finditer(text):
        rest = text[match.end() :]
        end = re.search(r"^(?=[^\s#)\]}])", rest, re.MULTILINE)
        bases = re.sub(r"#[^\n]*", "", match.group(2) or "")
        names = [re.sub(r"\[.*", "", base.strip(), flags=re.DOTALL).rpartition(".")[2] for base in bases.split(",")]
        found[match.group(1)] = Class(
            match.group(1), [name for name in names if name and "=" not in name], rest[: end.start()] if end else rest
        )
    return found


def imported_from(text: str, name: str) -> Optional[str]:
    """The module that a name is imported from, as it stands there; None when it is not imported by ``from``."""
    for module, grouped, plain in _IMPORT.findall(text):
        names = re.sub(r"#[^\n]*", "", grouped or plain)
        if re.search(r"(?<![\w.])%s(?!\w)" % re.escape(name), names):
            return str(module)
    return None


def module_file(module: str, importer: str, package: str) -> Optional[str]:
    """The path in the package of a module named in an import of the file ``importer``."""
    if module.startswith("."):
        dots = len(module) - len(module.lstrip("."))
        folder = importer.split("/")[:-1]
        if dots - 1 > len(folder):
            return None
        parts = folder[: len(folder) - (dots - 1)] + [part for part in module.lstrip(".").split(".") if part]
        return "/".join(parts) + ".py"
    if module.startswith(package + "."):
        return module[len(package) + 1 :].replace(".", "/") + ".py"
    return None


def inherits(read: Read, file: str, name: str, wanted: Callable[[Class], bool], package: str, depth: int = 4) -> Optional[bool]:
    """Whether the class ``name`` in ``file``, or one that it inherits from, is what is ``wanted``.

    None when that cannot be told: the class is not there, or one of its bases comes from a file that cannot be read.
    """
    text = read(file)
    found = classes(text or "").get(name)
    if text is None or found is None:
        return None
    if wanted(found):
        return True
    if depth <= 0:
        return None
    for base in found.bases:
        inner: Optional[bool] = False
        if base in classes(text):
            inner = inherits(read, file, base, wanted, package, depth - 1)
        else:
            module = imported_from(text, base)
            path = module_file(module, file, package) if module else None
            if path is not None and path != file:
                # a base outside the package (nn.Module) or an interface that is a package of its own says nothing here
                inner = inherits(read, path, base, wanted, package, depth - 1)
        if inner:
            return True
    return False


def line_of(text: str, at: int) -> int:
    """The line number of an offset."""
    return text.count("\n", 0, at) + 1


def strings(text: str) -> List[str]:
    """The string literals in a piece of source, in order."""
    return re.findall(r"[\"']([^\"'\n]*)[\"']", text)
