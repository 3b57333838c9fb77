"""Runs in files, so that a violation can be repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kinesumer.simulation.final_phases import AT_REST, FATAL, LATENCY
from kinesumer.simulation.limit_faults import KINDS
from kinesumer.simulation.run import Run

if TYPE_CHECKING:
    from pathlib import Path


def save(run: Run, path: Path) -> None:
    """Write a run to a file."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")


def load(path: Path) -> Run:
    """Return the run in a file. Raises ValueError if the file is invalid."""
    try:
        run = msgspec.json.decode(path.read_bytes(), type=Run)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} holds no run: {error}") from error
    unknown = {fault.kind for fault in run.faults} - KINDS.keys()
    unknown |= {run.ending} - AT_REST.keys() - FATAL.keys() - LATENCY.keys()
    if unknown:
        raise ValueError(f"{path} names unknown faults: {', '.join(sorted(unknown))}")
    return run


def command(path: Path) -> str:
    """Return the command that replays a file."""
    return f"python -m kinesumer.simulation --replay {path}"
