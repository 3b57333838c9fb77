"""Produce numbered records at a rate, one in five in a KPL aggregate."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.demo.events import Produced
from kinesumer.demo.record_log import shard_number
from kinesumer.wire.put_records import UserRecord, aggregate

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.demo.events import RecordCounts

TICK_SECONDS = 0.2
AGGREGATED_SHARE = 0.2
AGGREGATE_RECORDS = 8
BATCH_RECORDS = 400
"""Records per PutRecords call. Kinesis accepts at most 500."""
FILLER = b"." * 80


class Entry(NamedTuple):
    """A Kinesis record to write, and the numbers in it."""

    numbers: list[int]
    key: str
    data: bytes


class Producer:
    """Produces to one stream. All producers share the numbers."""

    def __init__(
        self,
        stream: int,
        arn: str,
        kinesis: Any,
        counts: RecordCounts,
        say: Callable[[str], None],
    ) -> None:
        self._stream, self._arn = stream, arn
        self._kinesis = kinesis
        self._counts = counts
        self._say = say
        self._random = random.Random(stream)
        self._failing = False

    async def run(self, rate: float, numbers: Numbers, stop: asyncio.Event) -> None:
        """Produce until ``stop`` is set. Each record is counted, or is uncertain."""
        started = time.monotonic()
        taken, refused = 0, list[Entry]()
        while not stop.is_set():
            due = int((time.monotonic() - started) * rate) - taken
            taken += due
            entries = refused + self._make(numbers.take(due))
            refused = []
            for first in range(0, len(entries), BATCH_RECORDS):
                refused += await self._put(entries[first : first + BATCH_RECORDS])
            await asyncio.sleep(TICK_SECONDS)
        while refused:
            await asyncio.sleep(TICK_SECONDS)
            refused = await self._put(refused[:BATCH_RECORDS]) + refused[BATCH_RECORDS:]

    def _make(self, numbers: range) -> list[Entry]:
        entries, left = [], list(numbers)
        while left:
            key = f"customer-{self._random.randrange(10_000)}"
            size = 1
            # An aggregate holds eight records, so it is drawn that much more rarely.
            share = AGGREGATED_SHARE / AGGREGATE_RECORDS
            if self._random.random() < share / (share + 1 - AGGREGATED_SHARE):
                size = min(AGGREGATE_RECORDS, len(left))
            taken, left = left[:size], left[size:]
            users = [UserRecord(b"%020d" % n + FILLER, key) for n in taken]
            data = users[0].data if size == 1 else aggregate(users)
            entries.append(Entry(taken, key, data))
        return entries

    async def _put(self, entries: list[Entry]) -> list[Entry]:
        """Write entries, and return those that Kinesis throttled."""
        records = [{"Data": entry.data, "PartitionKey": entry.key} for entry in entries]
        try:
            answer = await self._kinesis.put_records(
                StreamARN=self._arn, Records=records
            )
        except Exception as error:
            numbers = (n for entry in entries for n in entry.numbers)
            self._counts.uncertain.update(numbers)
            if not self._failing:
                self._say(f"producing fails: {error}")
            self._failing = True
            return []
        self._failing = False
        now, refused = time.monotonic(), []
        for entry, result in zip(entries, answer["Records"], strict=True):
            if "ErrorCode" in result:
                refused.append(entry)
            else:
                self._count(entry, result, now)
        return refused

    def _count(self, entry: Entry, result: dict[str, str], now: float) -> None:
        self._counts.aggregates += len(entry.numbers) > 1
        shard, position = shard_number(result["ShardId"]), result["SequenceNumber"]
        for sub, number in enumerate(entry.numbers):
            self._counts.add_produced(
                Produced(number, self._stream, shard, position, sub, now)
            )


class Numbers:
    """Counts up from 1."""

    def __init__(self) -> None:
        self._next = 1

    def take(self, count: int) -> range:
        """Return the next numbers."""
        first, self._next = self._next, self._next + count
        return range(first, self._next)
