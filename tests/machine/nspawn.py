"""A host of its own inside this one: Debian with systemd, logind and sshd, booted by systemd-nspawn in a network of its own.

`base_root` builds the root once by debootstrap and keeps it under ~/.cache; every `Machine` is a thin layer in memory over it, so
a boot takes a second or two and leaves nothing. Users: root, and ann and bob without rights. Everything is ended by pid.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.host.sshd import write_key

PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "libpam-systemd", "openssh-server", "python3", "procps", "iproute2", "e2fsprogs",
)  # fmt: skip
USERS = ("ann", "bob")
TOOLS = ("systemd-nspawn", "debootstrap", "nsenter", "ip", "mount", "umount")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
BOOT_SECONDS = 90.0
_T = TypeVar("_T")
_count = 0


def missing() -> str | None:
    """Why no machine can be booted here, in words; None when it can."""
    if os.geteuid() != 0:
        return "systemd-nspawn needs root"
    absent = [tool for tool in TOOLS if shutil.which(tool, path=PATH) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (Debian packages systemd-container, debootstrap, iproute2)"
    if cgroup_tree() is None:
        return "no cgroup v2 is mounted"
    return None


def cgroup_tree() -> Path | None:
    """Where the unified hierarchy of control groups is mounted."""
    for path in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if Path(path, "cgroup.procs").exists():
            return Path(path)
    return None


def cache() -> Path:
    """Where built roots are kept: the user's own cache, whatever HOME a test has set."""
    return Path(pwd.getpwuid(os.geteuid()).pw_dir, ".cache", "eagletui", "tests", "nspawn")


def base_root() -> Path:
    """The root of all machines, built when it is missing (a minute, 310 MB). Raises `RuntimeError`: the builder's last lines."""
    here = cache()
    here.mkdir(parents=True, exist_ok=True)
    root = here / ("root-" + hashlib.sha256(" ".join((*PACKAGES, *USERS)).encode()).hexdigest()[:8])
    with (here / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once build it once
        if not root.exists():
            _build(here, root)
    return root


def _build(here: Path, root: Path) -> None:
    half = here / "building"
    _remove_root(half)
    release = dict(line.partition("=")[::2] for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    suite = release.get("VERSION_CODENAME", "bookworm") if release.get("ID") == "debian" else "bookworm"
    made = subprocess.run(
        ["debootstrap", "--variant=minbase", "--include=" + ",".join(PACKAGES), suite, str(half)],
        capture_output=True, text=True, check=False, env={**os.environ, "PATH": PATH, "DEBIAN_FRONTEND": "noninteractive"},
    )  # fmt: skip
    if made.returncode:
        raise RuntimeError("debootstrap failed: " + " / ".join((made.stdout + made.stderr).strip().splitlines()[-3:]))
    for user in USERS:
        subprocess.run(["chroot", str(half), "useradd", "-m", "-s", "/bin/bash", user], check=True, env={"PATH": PATH})
    shutil.rmtree(half / "var/cache/apt", ignore_errors=True)
    half.rename(root)


def _remove_root(root: Path) -> None:
    """Delete a root that was not finished; what its builder had mounted there (/proc) must not be deleted into."""
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        where = Path(line.split()[1])
        if root in where.parents:
            _tool("umount", str(where))
    shutil.rmtree(root, ignore_errors=True)


def wait_for(what: str, look: Callable[[], _T], seconds: float = 60.0) -> _T:
    """The first true value of ``look``; a test fails when it does not come."""
    deadline = time.monotonic() + seconds
    while True:
        value = look()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.05)


class Machine:
    """One host. ``unified=False`` gives it the control groups of old (v1).

    ``address`` is its IP, sshd listens on port 22, ``key`` opens it for root, ann and bob. `run` needs no ssh.
    """

    port = 22

    def __init__(self, directory: Path, unified: bool = True) -> None:
        global _count
        self.directory, self.unified = directory, unified
        self.name = "et" + uuid.uuid4().hex[:8]
        self.root = directory / "root"
        self.key = directory / "id_ed25519"
        _count += 1
        at = (os.getpid() * 16 + _count) % 16384
        self._net = f"10.231.{at >> 6}.{(at & 63) * 4}"
        self.address = self._host(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0
        write_key(self.key)
        self._mount(base_root())

    def _host(self, number: int) -> str:
        head, _, last = self._net.rpartition(".")
        return f"{head}.{int(last) + number}"

    def _mount(self, base: Path) -> None:
        layer = self.directory / "layer"
        for path in (layer, self.root):
            path.mkdir()
        _tool("mount", "-t", "tmpfs", "-o", "size=2g", "tmpfs", str(layer))
        (layer / "upper").mkdir()
        (layer / "work").mkdir()
        options = f"lowerdir={base},upperdir={layer}/upper,workdir={layer}/work"
        _tool("mount", "-t", "overlay", "overlay", "-o", options, str(self.root))
        for user in ("root", *USERS):
            home = self.root / ("root" if user == "root" else f"home/{user}")
            info = home.stat()
            (home / ".ssh").mkdir(exist_ok=True)
            keys = home / ".ssh/authorized_keys"
            keys.write_text(Path(f"{self.key}.pub").read_text())
            for path, mode in ((home / ".ssh", 0o700), (keys, 0o600)):
                path.chmod(mode)
                os.chown(path, info.st_uid, info.st_gid)

    # ------------------------------------------------------------------------------------------------------ on and off

    def boot(self) -> Machine:
        """Start it, and wait until it lets users in."""
        self._groups = [tree / f"eagletui-{self.name}" for tree in _trees()]
        own = cgroup_tree()
        assert own is not None
        (own / f"eagletui-{self.name}").mkdir()  # nspawn makes its groups below its own: machines must not share one
        with (self.directory / "console.log").open("ab") as console:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(own / f"eagletui-{self.name}"),
                 "systemd-nspawn", "--register=no", "--keep-unit", "--boot", "--quiet", "--console=pipe", "--network-veth",
                 f"--machine={self.name}", f"--directory={self.root}"],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console,
                env={"PATH": PATH, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1" if self.unified else "0"},
            )  # fmt: skip
        self._came_up()
        return self

    def _came_up(self) -> None:
        self._leader = wait_for(f"a process 1 in {self.name}: {self.console()}", self._find_leader, BOOT_SECONDS)
        link = f"ve-{self.name}"
        wait_for("its network", lambda: Path(f"/proc/{self._leader}/net/dev").read_text().count("host0:"), BOOT_SECONDS)
        _tool("ip", "addr", "add", f"{self._host(1)}/30", "dev", link)
        _tool("ip", "link", "set", link, "up")
        for words in (f"addr add {self.address}/30 dev host0", "link set host0 up", "link set lo up"):
            _tool("nsenter", "-t", str(self._leader), "-n", "ip", *words.split())
        wait_for(f"the end of its boot: {self.console()}", self._is_up, BOOT_SECONDS)
        wait_for("its sshd", self._answers, BOOT_SECONDS)

    def _find_leader(self) -> int:
        process = self._process
        assert process is not None
        assert process.poll() is None, f"systemd-nspawn ended: {self.console()}"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in map(int, children):
            with contextlib.suppress(OSError):  # it may end in this moment: then it is none
                inside = Path(f"/proc/{child}/status").read_text().partition("NSpid:")[2].splitlines()[0].split()
                if len(inside) > 1 and inside[-1] == "1":
                    return child
        return 0

    def _is_up(self) -> bool:
        answer = self.run("systemctl", "is-system-running", check=False).strip()
        return answer in ("running", "degraded")

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.address, self.port), 2) as sock:
                return sock.recv(4) == b"SSH-"
        except OSError:
            return False

    def power_cut(self) -> None:
        """Every process in it ends at once; its files stay. `boot` starts it again, as after a reboot."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
                if self._leader:
                    os.kill(self._leader, signal.SIGKILL)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(30)
        self._process, self._leader = None, 0
        for group in self._groups:
            wait_for(f"the end of {group}", lambda g=group: _removed(g), 30)  # type: ignore[misc]

    def reboot(self) -> None:
        """In order: systemd inside stops its units first."""
        process = self._process
        assert process is not None
        self.run("systemctl", "reboot", check=False)
        wait_for("its end", lambda: process.poll() is not None, 240)  # with --keep-unit nspawn ends and leaves the start to us
        self.power_cut()
        self.boot()

    def close(self) -> None:
        """End it and leave nothing of it."""
        self.power_cut()
        for path in (self.root, self.directory / "layer"):
            _tool("umount", "-l", str(path))

    # --------------------------------------------------------------------------------------------------------- inside

    def run(self, *argv: str, user: str | None = None, check: bool = True, stdin: str = "") -> str:
        """What a command inside prints. It runs beside every login session, as root or as ``user``."""
        as_user = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--") if user else ()
        done = subprocess.run(
            ["nsenter", "-t", str(self._leader), "-m", "-u", "-i", "-n", "-p", "-C", "--", *as_user, *argv],
            input=stdin, capture_output=True, text=True, check=False, env={"PATH": PATH, "LANG": "C.UTF-8"},
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{' '.join(argv)}: {done.returncode} {done.stdout}{done.stderr}"
        return done.stdout

    def alive(self, pid: int) -> bool:
        """Whether a process of it (by its own pid) runs; a zombie does not."""
        state = self.run("ps", "-o", "stat=", "-p", str(pid), check=False).strip()
        return bool(state) and not state.startswith("Z")

    def process_with_pid(self, pid: int) -> int:
        """A process inside that sleeps and has this very pid, which must be free; it lives as long as the machine."""
        script = f"echo {pid - 1} >/proc/sys/kernel/ns_last_pid; sleep 3600 </dev/null >/dev/null 2>&1 & echo $!"
        for _ in range(50):  # somebody else may start a process in between
            # this host's /proc, which may be written; the numbers are those of the machine all the same
            done = subprocess.run(
                ["nsenter", "-t", str(self._leader), "-p", "--", "/bin/sh", "-c", script],
                capture_output=True, text=True, check=True, env={"PATH": PATH},
            )  # fmt: skip
            if int(done.stdout) == pid:
                return pid
            self.run("kill", "-9", done.stdout.strip())
        raise AssertionError(f"no process with pid {pid} could be made")

    def path(self, inside: str) -> Path:
        """A path of the machine as this host sees it; what is mounted inside (/run, /tmp) is not there."""
        return self.root / inside.lstrip("/")

    def known_line(self) -> str:
        """Its line for known_hosts."""
        kind, blob = self.path("/etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2]
        return f"{self.address} {kind} {blob}\n"

    def console(self) -> str:
        """The last of what its console said."""
        path = self.directory / "console.log"
        return " / ".join(path.read_text(errors="replace").splitlines()[-5:]) if path.exists() else ""


def _tool(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"PATH": PATH})
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"


def _trees() -> Iterator[Path]:
    """All mounted hierarchies of control groups."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        where, kind = line.split()[1:3]
        if kind in ("cgroup", "cgroup2"):
            yield Path(where)


def _removed(group: Path) -> bool:
    """Remove a control group and those below it; False while a process is still leaving one."""
    for directory, _names, _files in os.walk(group, topdown=False):
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return not group.exists()


def home_for(machine: Machine, home: Path, **env: Any) -> dict[str, str]:
    """A client's HOME that knows the machine and has its key; the environment for a process that uses it."""
    ssh = home / ".ssh"
    ssh.mkdir(parents=True, mode=0o700, exist_ok=True)
    for name in ("id_ed25519", "id_ed25519.pub"):
        shutil.copy(machine.key.with_name(name), ssh / name)
    (ssh / "known_hosts").write_text(machine.known_line())
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**kept, "HOME": str(home), "USER": "operator", "TERM": "xterm-256color", **env}
