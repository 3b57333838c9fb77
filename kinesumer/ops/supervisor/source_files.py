"""Notice that the source files of an application change, for development."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

# Short beside the time in which a process starts.
SCAN_SECONDS = 0.5

Scan = Mapping[Path, int]


def scan(root: Path) -> Scan:
    """Return when each Python file below a directory was changed, in nanoseconds.

    Hidden directories and virtual environments are left out.
    """
    found = {}
    for directory, names, files in os.walk(root):
        here = Path(directory)
        names[:] = [
            name
            for name in names
            if not name.startswith((".", "__pycache__", "node_modules"))
            and not (here / name / "pyvenv.cfg").exists()
        ]
        for name in files:
            if name.endswith(".py"):
                try:
                    found[here / name] = (here / name).stat().st_mtime_ns
                except OSError:  # deleted meanwhile
                    continue
    return found


def changed(before: Scan, after: Scan) -> list[Path]:
    """Return the files that were changed, created or deleted."""
    return sorted(
        path
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path)
    )


async def changes(root: Path) -> AsyncGenerator[list[Path], None]:
    """Yield the files that have changed, each time that some have."""
    before = await asyncio.to_thread(scan, root)
    while True:
        await asyncio.sleep(SCAN_SECONDS)
        after = await asyncio.to_thread(scan, root)
        if found := changed(before, after):
            yield found
        before = after
