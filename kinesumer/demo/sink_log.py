"""What Spark's file sink has committed, by its own log: the directory alone lies.

A batch that was cut off leaves files behind that no reader may count. Spark writes one
log file per batch, ``_spark_metadata/N``, and each tenth as ``N.compact``, which also
holds everything before it; those before it may be deleted later.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOG = "_spark_metadata"
COMPACT = ".compact"


class Committed(NamedTuple):
    """A file that belongs to the sink's output."""

    batch: int
    """The batch that wrote it; of files that only a compact log names, the latest
    that may have."""
    path: str


def committed(output: Path) -> list[Committed]:
    """Return the files of the output, in the order of their batches."""
    found: dict[str, int] = {}
    for batch, log in sorted(_logs(output)):
        for path in _added(log):
            found.setdefault(path, batch)
    return [Committed(batch, path) for path, batch in found.items()]


def _logs(output: Path) -> Iterator[tuple[int, Path]]:
    # A temporary file of an unfinished write begins with a dot.
    for path in (output / LOG).glob("[0-9]*"):
        yield int(path.name.removesuffix(COMPACT)), path


def _added(log: Path) -> Iterator[str]:
    version, *lines = log.read_text().splitlines()
    if version != "v1":
        raise ValueError(f"{log} is of version {version}, not v1")
    for line in lines:
        entry = json.loads(line)
        if entry["action"] != "add":
            raise ValueError(f"{log} holds an unknown action: {entry['action']}")
        yield unquote(urlparse(entry["path"]).path)
