"""Recordings that tests write line by line."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kinesumer import Config
from kinesumer.telemetry.history import FORMAT
from kinesumer.telemetry.recording import Recording

APP, CLIENT = "app", "client-1"
START = 1_000.0  # when the recorded client starts, by its clock


class WrittenRecording:
    """A recording of one client, whose lines have times since its start."""

    def __init__(self, config: Config | None = None) -> None:
        self.lines: list[dict[str, Any]] = []
        self._calls = 0
        given = asdict(config or Config())
        about = {"app": APP, "client": CLIENT, "commit": given["commit"]}
        times = {"boot": "", "wall_offset": 1_800_000_000.0}
        self.add(0.0, "client", format=FORMAT, config=given, **about, **times)
        consumed: dict[str, Any] = {
            "streams": [],
            "start": {"type": "LATEST"},
            "until": None,
        }
        self.add(0.0, "consume", **consumed)

    def add(self, at: float, kind: str, **fields: Any) -> None:
        """Add a line."""
        self.lines.append({"kind": kind, "at": START + at, **fields})

    def call(
        self, at: float, name: str, result: Any = None, error: str = "", **about: Any
    ) -> None:
        """Add a call that is answered 10 ms later."""
        self._calls += 1
        self.add(at, "call", call=self._calls, name=name, **about)
        answer = {"error": error} if error else {"result": result}
        self.add(at + 0.01, "answer", call=self._calls, **answer)

    def save(self, path: Path) -> Path:
        """Write the lines to a file, and return its path."""
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return path


def record_again(path: Path, again: Path, segment_seconds: float) -> None:
    """Write the lines of a recording to another one, which begins anew more often."""
    recording = Recording(again, segment_seconds)
    for text in path.read_text().splitlines():
        line = json.loads(text)
        if "shard" in line:
            line["shard"] = tuple(line["shard"])
        if "count" in line:
            line["positions"] = [None] * line.pop("count")
        recording.append(line)
    recording.close()
