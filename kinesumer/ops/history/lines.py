"""Read the lines of histories: what each process did, and when.

``docs/histories.md`` describes the lines. Positions become tuples that sort as the
records of a shard do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FORMAT = 1
# Sorts a whole Kinesis record after all its parts.
WHOLE = 1 << 53
# How the names of the rows of shards and members begin.
SHARD_ROW, MEMBER_ROW, LEADER_ROW = "shard#", "member#", "leader#"

Shard = tuple[str, str, str]  # an app, a stream's ARN and a shard's id
Position = tuple[int, str, int]
BEGINNING: Position = (0, "", 0)
LAST: Position = (1_000, "", 0)  # sequence numbers have at most 129 digits


class HistoryError(Exception):
    """A history that can't be read."""


class Call(NamedTuple):
    """A call to AWS, with the times at which it began and ended."""

    process: str
    name: str
    arguments: Mapping[str, Any]
    began: float
    ended: float = math.inf  # infinite if the process got no answer
    result: Any = None
    error: str = ""  # the type of the error; the write may have been applied

    @property
    def is_applied(self) -> bool:
        """True if it is certain that the table applied the write."""
        return self.name == "write" and bool(self.result) and self.result["applied"]

    @property
    def may_be_applied(self) -> bool:
        """True unless the table certainly refused the write."""
        if self.name != "write" or self.error == "StoreThrottledError":
            return False
        return self.result is None or bool(self.result["applied"])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the answer."""
        if self.result is None:
            return []
        if self.name == "write":
            row = self.result["row"]
            return [row] if row else []
        if self.name == "get":
            return [self.result]
        return list(self.result) if self.name == "query" else []


class Delivery(NamedTuple):
    """Records that user code got, has done or gave up, or that Kinesis acknowledged."""

    kind: str
    process: str
    at: float
    shard: Shard
    epoch: int
    positions: tuple[Position, ...]
    # True if user code does a record by asking for the next one.
    acks_by_asking: bool
    keys: tuple[str, ...] = ()


class Client(NamedTuple):
    """A process that wrote a history."""

    app: str
    client: str
    commit: str
    boot: str  # names the clock of the times of its lines
    wall_offset: float  # what this clock has to be set forward to show UTC


class Histories(NamedTuple):
    """All that the processes wrote."""

    clients: dict[str, Client]  # by process
    calls: list[Call]
    records: list[Delivery]
    faults: list[str]  # lines that contradict one another

    @property
    def is_on_one_clock(self) -> bool:
        """True if one machine has written all lines."""
        return len({client.boot for client in self.clients.values()}) <= 1

    def in_utc(self) -> Histories:
        """Return the histories with times in UTC, to compare those of machines."""
        offsets = {name: client.wall_offset for name, client in self.clients.items()}

        def utc(process: str, at: float) -> float:
            return at + offsets.get(process, 0.0)

        calls = [
            x._replace(began=utc(x.process, x.began), ended=utc(x.process, x.ended))
            for x in self.calls
        ]
        records = [x._replace(at=utc(x.process, x.at)) for x in self.records]
        return self._replace(calls=calls, records=records)

    def count(self, kind: str) -> int:
        """Return the number of records in the lines of a kind."""
        return sum(len(each.positions) for each in self.records if each.kind == kind)


def position_of(value: Any) -> Position:
    """Return a position of a line: a sequence number and perhaps a sub-sequence."""
    number, sub = str(value[0]), value[1]
    return len(number), number, WHOLE if sub is None else int(sub)


def text_of(position: Position) -> str:
    """Return a position as users know it."""
    _, number, sub = position
    return number if sub == WHOLE else f"{number}:{sub}"


def row_position(row: Mapping[str, Any]) -> Position:
    """Return the checkpoint of a shard's row."""
    number = row.get("sequence_number")
    if number is None:
        return BEGINNING
    return position_of((number, row.get("sub_sequence_number")))


def row_shard(row: Mapping[str, Any]) -> Shard:
    """Return the shard of a shard's row."""
    return key_shard((row["pk"], row["sk"]))


def key_shard(key: Sequence[str]) -> Shard:
    """Return the shard of the key of a shard's row."""
    _, app, arn = key[0].split("#", 2)
    return app, arn, key[1].partition("/")[2]


def find_files(directories: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file ``*.jsonl``. Raises HistoryError."""
    files = [file for each in directories for file in sorted(each.glob("**/*.jsonl"))]
    if not files:
        raise HistoryError("no history: the directories have no file *.jsonl")
    for file in files:
        yield file.stem, file.read_bytes()


def read_histories(files: Iterable[tuple[str, bytes]]) -> Histories:
    """Read files, given by name and content. Raises HistoryError."""
    found = Histories({}, [], [], [])
    for process, content in files:
        open_calls: dict[int, Call] = {}
        for number, text in enumerate(_whole_lines(content), 1):
            try:
                _read_line(process, json.loads(text), open_calls, found)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise HistoryError(
                    f"{process}, line {number}: {error!r} in {text!r:.500}"
                ) from error
        found.calls.extend(open_calls.values())
    return found


def _whole_lines(content: bytes) -> list[bytes]:
    """Return the lines of a file. A last one that a kill has cut off is left out."""
    return content[: content.rfind(b"\n") + 1].splitlines()


def _read_line(
    process: str, line: dict[str, Any], open_calls: dict[int, Call], found: Histories
) -> None:
    at = float(line["at"])
    match line["kind"]:
        case "client":
            if line["format"] != FORMAT:
                raise ValueError(f"format {line['format']} is not {FORMAT}")
            names = (line[name] for name in Client._fields)
            found.clients[process] = Client(*names)
        case "call":
            open_calls[line["call"]] = Call(process, line["name"], line, at)
        case "answer":
            call = open_calls.pop(line["call"], None)
            if call is None:
                found.faults.append(f"{process}: call {line['call']} has two answers")
                return
            if at < call.began:
                found.faults.append(f"{process}: {call.name} ended before it began")
            error = line.get("error", "")
            call = call._replace(error=error, result=line.get("result"))
            # An error is no answer: the table may apply the write at any later time.
            found.calls.append(call if error else call._replace(ended=at))
        case "deliver" | "done" | "give up" | "produced":
            found.records.append(_delivery(process, at, line, found))
        case kind:
            raise ValueError(f"kind {kind!r} is unknown")


def _delivery(
    process: str, at: float, line: dict[str, Any], found: Histories
) -> Delivery:
    arn, shard_id = line["shard"]
    client = found.clients.get(process)  # a producer is no client
    return Delivery(
        line["kind"],
        process,
        at,
        ("" if client is None else client.app, arn, shard_id),
        line.get("epoch", 0),
        tuple(map(position_of, line["positions"])),
        line.get("by") == "loop" and client is not None and client.commit == "auto",
        tuple(line.get("keys", ())),
    )
