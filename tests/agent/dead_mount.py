"""Mounts a file system whose server never answers (FUSE without a daemon), then becomes the command that follows.

    unshare -m python dead_mount.py FOLDER -- COMMAND...

Whoever asks this mount anything waits until it is killed. In a mount namespace of its own it is gone with the command.
"""

import ctypes
import os
import sys


def main() -> None:
    folder, command = sys.argv[1], sys.argv[3:]
    fd = os.open("/dev/fuse", os.O_RDWR)
    os.set_inheritable(fd, True)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0"
    if libc.mount(b"nas:/gone", folder.encode(), b"fuse.dead", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")
    os.execv(command[0], command)


main()
