"""Atomic and durable writes of files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes, mode: int) -> None:
    """Replace a file atomically, and return after it is on the disk."""
    target = path.resolve()
    file, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        os.fchmod(file, mode)
        write_all(file, content)
        os.fsync(file)
        Path(name).replace(target)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        os.close(file)
    sync_directory(target)


def write_all(file: int, content: bytes) -> None:
    """Write all content to a file descriptor."""
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]


def sync_directory(path: Path) -> None:
    """Wait until a file's name in its directory is on the disk."""
    directory = os.open(path.resolve().parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
