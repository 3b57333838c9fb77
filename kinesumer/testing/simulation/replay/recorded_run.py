"""Read a recording: the calls, their answers, and what user code did.

``docs/recordings.md`` describes the files. All times are virtual: seconds since the
replay's start.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from kinesumer.config import Config
from kinesumer.telemetry.history import FORMAT, Line
from kinesumer.telemetry.recording import previous_segment
from kinesumer.telemetry.recording_state import ToldState

# A client that starts before its recording learns its range within the eighth of a
# heartbeat interval, and claims its shards. The others send no heartbeats meanwhile,
# and are dead after three intervals.
START_HEARTBEATS = 1.0


class RecordingError(Exception):
    """A recording that can't be read."""


@dataclass(eq=False)
class RecordedCall:
    """A call of the recorded client. A replay uses each at most once."""

    name: str
    arguments: Line
    begun: float
    answered: float = math.inf  # infinite if the client got no answer
    result: Any = None
    error: str = ""  # the type of the error
    is_used: bool = False

    @property
    def is_cut_off(self) -> bool:
        """True if the client got no answer, since it died or gave the call up."""
        return math.isinf(self.answered) or self.error == "CancelledError"


class UserEvent(NamedTuple):
    """An action of user code: it asked for records, was done with some, or left."""

    at: float
    kind: str
    line: Line


class Gap(NamedTuple):
    """A time in which the process did nothing, such as between SIGSTOP and SIGCONT."""

    begin: float
    end: float


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """The actions of one client, and the answers that it got."""

    app: str
    client_id: str
    config: Config
    wall_offset: float  # what the virtual clock has to be set forward to show UTC
    # What the client knew when the recording began; None if it began with the client.
    known: ToldState | None
    begin: float  # the time of the first line; until then the client starts
    consume: Line
    lines: Sequence[Line]  # with virtual times
    calls: Sequence[RecordedCall]  # in the order in which they began
    user: Sequence[UserEvent]
    end: float  # the time of the last line

    def gaps(self) -> list[Gap]:
        """Return the times in which the process did nothing, although it should."""
        # A client that runs sends heartbeats. Reads and polls come between them.
        least = 2 * self.config.heartbeat_interval_seconds
        times = [self.begin, *(max(self.begin, x["at"]) for x in self.lines)]
        return [Gap(*pair) for pair in pairwise(times) if pair[1] - pair[0] > least]


def read_recording(path: Path) -> RecordedRun:
    """Return what a recording says, with the segment before it if that is the client's.

    Raises RecordingError.
    """
    lines = _read_lines(path)
    before = previous_segment(path)
    if before.exists():
        earlier = _read_lines(before)
        if earlier[:1] == lines[:1]:
            lines = [*earlier, *_without_head(lines)]
    try:
        return _build(lines)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise RecordingError(
            f"{path}: {error!r}: it isn't a recording, or one of another version; "
            "name the file of KINESUMER_RECORD"
        ) from error


def _read_lines(path: Path) -> list[Line]:
    content = path.read_bytes()
    # A kill may have cut off the last line.
    whole = content[: content.rfind(b"\n") + 1].splitlines()
    try:
        return [json.loads(text) for text in whole]
    except ValueError as error:
        raise RecordingError(f"{path}: {error}: it isn't a recording") from error


def _without_head(lines: list[Line]) -> Iterator[Line]:
    """Yield the lines of a segment without those that repeat what was known."""
    return (line for line in lines if line["kind"] not in ("client", "known"))


def _build(lines: list[Line]) -> RecordedRun:
    client = lines[0]
    if client["kind"] != "client" or client["format"] != FORMAT:
        raise ValueError(f"the first line is {client!r:.200}")
    config = Config(**client["config"])
    known, consume, first, begin = None, None, client["at"], 0.0
    if len(lines) > 1 and lines[1]["kind"] == "known":
        known, first = ToldState(), lines[1]["at"]
        known.learn(lines[1])
        consume = known.consume
        begin = START_HEARTBEATS * config.heartbeat_interval_seconds
        first -= begin
    rest = [{**line, "at": line["at"] - first} for line in _without_head(lines)]
    rest.sort(key=lambda line: line["at"])
    consume = next((x for x in rest if x["kind"] == "consume"), consume)
    if consume is None:
        raise ValueError("no line says what was consumed: the client didn't start")
    return RecordedRun(
        app=client["app"],
        client_id=client["client"],
        config=config,
        wall_offset=client["wall_offset"] + first,
        known=known,
        begin=begin,
        consume=consume,
        lines=rest,
        calls=_calls(rest, known, first),
        user=[UserEvent(x["at"], x["kind"], x) for x in rest if x["kind"] in USER],
        end=max((line["at"] for line in rest), default=0.0),
    )


USER = frozenset(("ask", "done", "give up", "refresh", "leave", "end"))


def _calls(
    lines: Sequence[Line], known: ToldState | None, first: float
) -> list[RecordedCall]:
    calls: list[RecordedCall] = []
    open_calls: dict[int, RecordedCall] = {}
    before = [] if known is None else [*known.open_calls.values()]
    begun = [{**call, "at": call["at"] - first} for call in before]
    for line in (*begun, *lines):
        if line["kind"] == "call":
            call = RecordedCall(line["name"], line, line["at"])
            open_calls[line["call"]] = call
            calls.append(call)
        elif line["kind"] == "answer":
            call = open_calls.pop(line["call"])
            call.answered, call.result = line["at"], line.get("result")
            call.error = line.get("error", "")
    return calls
