"""Atomic and durable writes of files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes, mode: int) -> None:
    """Replace a file atomically, and return when the new file is on the disk.

    The new file has the owner and the group of the old one. Raises OSError.
    """
    target = path.resolve()
    # The new file is created in the same directory, since a file can be replaced
    # atomically only within one file system.
    file, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        _keep_owner(file, target)
        os.fchmod(file, mode)
        write_all(file, content)
        # Without fsync(), a power failure after the replacement could leave an empty
        # file.
        os.fsync(file)
        Path(name).replace(target)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        os.close(file)
    sync_directory(target)


def _keep_owner(file: int, target: Path) -> None:
    """Give a new file the owner and the group of the file that it will replace."""
    # Otherwise a client could no longer write to its file after root has changed it.
    try:
        old = target.stat()
    except FileNotFoundError:
        return
    new = os.fstat(file)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.fchown(file, old.st_uid, old.st_gid)


def write_all(file: int, content: bytes) -> None:
    """Write all content to a file descriptor."""
    view = memoryview(content)
    while view:  # a full disk or a signal may end a call early
        view = view[os.write(file, view) :]


def sync_directory(path: Path) -> None:
    """Wait until the directory entry of a file is on the disk."""
    directory = os.open(path.resolve().parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
