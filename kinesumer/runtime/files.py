"""Files that are on the disk when a call returns, whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes, mode: int) -> None:
    """Put a new file in the place of what a path names. Raises OSError."""
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
    """Write all of it to a descriptor. Raises OSError."""
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]


def sync_directory(path: Path) -> None:
    """Have the name of a file on the disk. Raises OSError."""
    directory = os.open(path.resolve().parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
