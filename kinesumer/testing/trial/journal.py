"""The numbered records of a trial: how they are produced, and noted when handled.

A client adds each line to its journal in one write, before the record counts as
processed. So a SIGKILL loses no line.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from kinesumer.model.positions import Position
from kinesumer.model.records import Record
from kinesumer.model.streams import ShardKey
from kinesumer.model.table_streams import is_table_stream
from kinesumer.runtime.clock import SystemClock
from kinesumer.testing.kinesis.limits import Limits
from kinesumer.wire import put_records

TICK_SECONDS = 0.2
AGGREGATE_RECORDS = 8
MAX_RECORDS = Limits().request_records
# All processes of a machine share this clock.
now = SystemClock().now
T = TypeVar("T")


def number_of(record: Record) -> int:
    """Return the number of a record, or of a change of a numbered item."""
    if is_table_stream(record.stream):
        return number_of_change(record)
    return int(record.data.partition(b" ")[0])


def number_of_change(record: Record) -> int:
    """Return the number that an item has since a change."""
    return int((record.change.new_image or {})["number"])


def data_of(number: int, key: str) -> bytes:
    """Return the data of a numbered record, of about 100 bytes."""
    return f"{number:020d} {key:>80}".encode()


class Produced(NamedTuple):
    """A user record, its shard and its position."""

    number: int
    key: str
    shard: ShardKey
    position: Position
    at: float = 0.0  # the time of Kinesis's acknowledgement

    @property
    def data(self) -> bytes:
        """Return the record's data."""
        return data_of(self.number, self.key)


class Handled(NamedTuple):
    """A record that a client's handler has handled."""

    client: str
    number: int
    shard: ShardKey
    position: Position
    epoch: int
    began: float
    ended: float


class LineWriter:
    """Appends values to a file, one line of JSON each."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, value: object) -> None:
        """Write a line."""
        os.write(self._file, msgspec.json.encode(value) + b"\n")


class JournalWriter(LineWriter):
    """The journal of a client, in the client's process.

    Its records are texts that begin with a number, followed by a space, or changes of
    numbered items.
    """

    def __init__(self, path: str, client: str) -> None:
        super().__init__(path)
        self._client = client

    def record(self, record: Record, began: float) -> None:
        """Note that a record was handled, from a time until now."""
        fence = record.fence
        place = fence.shard, record.position, fence.epoch
        handled = Handled(self._client, number_of(record), *place, began, now())
        self.write(handled)


class Journal(Generic[T]):
    """The lines that another process writes, read while their file grows."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.lines: list[T] = []
        self._path, self._decoder = path, msgspec.json.Decoder(kind)
        self._offset = 0

    def follow(self) -> list[T]:
        """Read and return new lines.

        An incomplete last line of a killed process is ignored.
        """
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        lines = self._decoder.decode_lines(whole)
        self.lines += lines
        return lines


class RecordCounts:
    """The produced and the handled records of a run, as far as they are known."""

    def __init__(self, arns: Iterable[str]) -> None:
        self.produced: list[Produced] = []
        # The changes of tables whose places aren't known yet: by stream and number, the
        # time of DynamoDB's acknowledgement.
        self.written: dict[str, dict[int, float]] = defaultdict(dict)
        self.handled: list[Handled] = []
        # Numbers of records in failed requests. Kinesis may have accepted them anyway.
        self.uncertain: set[int] = set()
        self.aggregates = 0
        # By stream, the numbers of the produced records that aren't handled yet.
        self.waiting: dict[str, set[int]] = {arn: set() for arn in arns}
        self.seen: set[int] = set()  # the numbers of the handled records

    @property
    def total(self) -> int:
        """The number of produced records and changes."""
        return len(self.produced) + sum(map(len, self.written.values()))

    def add_produced(self, record: Produced) -> None:
        """Count a produced record."""
        self.produced.append(record)
        self._await(record.shard.stream_arn, record.number)

    def add_written(self, arn: str, number: int) -> None:
        """Count a change of a table's item that DynamoDB has just acknowledged."""
        self.written[arn][number] = now()
        self._await(arn, number)

    def add_handled(self, record: Handled) -> None:
        """Count a handled record."""
        self.handled.append(record)
        self.seen.add(record.number)
        self.waiting[record.shard.stream_arn].discard(record.number)

    def _await(self, arn: str, number: int) -> None:
        if number not in self.seen:
            self.waiting[arn].add(number)


# --- the producer ---------------------------------------------------------------------


class Entry(NamedTuple):
    """A Kinesis record to write, and the numbers of the user records in it."""

    numbers: Sequence[int]
    key: str
    data: bytes

    def produced(self, shard: ShardKey, sequence_number: str) -> list[Produced]:
        """Return the user records, which Kinesis has just acknowledged."""
        at, size = now(), len(self.numbers)
        parts: Iterable[int | None] = range(size) if size > 1 else [None]
        return [
            Produced(number, self.key, shard, Position(sequence_number, part), at)
            for number, part in zip(self.numbers, parts, strict=True)
        ]


def make_entries(left: Sequence[int], chance: random.Random) -> Iterator[Entry]:
    """Yield entries for the numbers in order.

    A fifth of the records are parts of aggregates.
    """
    while left:
        key = f"customer-{chance.randrange(10_000)}"
        is_alone = chance.randrange(4 * AGGREGATE_RECORDS + 1)
        size = 1 if is_alone else min(AGGREGATE_RECORDS, len(left))
        taken, left = left[:size], left[size:]
        users = [put_records.Entry(data_of(number, key), key) for number in taken]
        data = users[0].data if size == 1 else put_records.aggregate(users)
        yield Entry(taken, key, data)


@dataclass
class Producer:
    """Produces to one stream. All producers number their records from one sequence."""

    arn: str
    client: Any  # an AWS client of the stream's service
    counts: RecordCounts
    say: Callable[[str], None]
    is_failing: bool = False

    most: ClassVar[int] = MAX_RECORDS  # entries of a request

    def __post_init__(self) -> None:
        self.random = random.Random(self.arn)

    async def run(
        self, rate: float, numbers: Iterator[int], stop: asyncio.Event
    ) -> None:
        """Produce until ``stop`` is set. Count each record as produced or uncertain."""
        started = now()
        taken, refused = 0, list[Entry]()
        while not stop.is_set():
            due = int((now() - started) * rate) - taken
            taken += due
            entries = [*refused, *self.entries(list(islice(numbers, due)))]
            refused = []
            for first in range(0, len(entries), self.most):
                refused += await self._put(entries[first : first + self.most])
            await asyncio.sleep(TICK_SECONDS)
        # Write the last throttled records, too, so that no number is missing.
        while refused:
            await asyncio.sleep(TICK_SECONDS)
            refused = await self._put(refused[: self.most]) + refused[self.most :]

    async def _put(self, entries: list[Entry]) -> list[Entry]:
        """Write entries, and return those that are to be written again."""
        try:
            refused = await self.request(entries)
        except Exception as error:
            numbers = (n for entry in entries for n in entry.numbers)
            self.counts.uncertain.update(numbers)
            if not self.is_failing:
                self.say(f"producing fails: {error}")
            self.is_failing = True
            return []
        self.is_failing = False
        return refused

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """Return entries for the numbers, in order."""
        return list(make_entries(numbers, self.random))

    async def request(self, entries: list[Entry]) -> list[Entry]:
        """Write entries, and return those that Kinesis throttled."""
        records = [{"Data": entry.data, "PartitionKey": entry.key} for entry in entries]
        answer = await self.client.put_records(StreamARN=self.arn, Records=records)
        refused = list[Entry]()
        for entry, result in zip(entries, answer["Records"], strict=True):
            if "ErrorCode" in result:
                refused.append(entry)
            else:
                self._count(entry, result)
        return refused

    def _count(self, entry: Entry, result: dict[str, str]) -> None:
        self.counts.aggregates += len(entry.numbers) > 1
        shard = ShardKey(self.arn, result["ShardId"])
        for record in entry.produced(shard, result["SequenceNumber"]):
            self.counts.add_produced(record)
