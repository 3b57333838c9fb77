"""Produce numbered records at a given rate. Some are parts of KPL aggregates."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey
from kinesumer.testing.kinesis.limits import Limits
from kinesumer.testing.trial.journal import Produced, RecordCounts, now
from kinesumer.wire import put_records

TICK_SECONDS = 0.2
AGGREGATE_RECORDS = 8
MAX_RECORDS = Limits().request_records


class Entry(NamedTuple):
    """A Kinesis record to write, and the numbers of the user records in it."""

    numbers: list[int]
    key: str
    data: bytes


@dataclass
class Producer:
    """Produces to one stream. All producers number their records from one sequence."""

    arn: str
    kinesis: Any
    counts: RecordCounts
    say: Callable[[str], None]
    is_failing: bool = False

    def __post_init__(self) -> None:
        self._random = random.Random(self.arn)

    async def run(
        self, rate: float, numbers: Iterator[int], stop: asyncio.Event
    ) -> None:
        """Produce until ``stop`` is set. Count each record as produced or uncertain."""
        started = now()
        taken, refused = 0, list[Entry]()
        while not stop.is_set():
            due = int((now() - started) * rate) - taken
            taken += due
            entries = refused + self._make(list(islice(numbers, due)))
            refused = []
            for first in range(0, len(entries), MAX_RECORDS):
                refused += await self._put(entries[first : first + MAX_RECORDS])
            await asyncio.sleep(TICK_SECONDS)
        # Write the last throttled records, too, so that no number is missing.
        while refused:
            await asyncio.sleep(TICK_SECONDS)
            refused = await self._put(refused[:MAX_RECORDS]) + refused[MAX_RECORDS:]

    def _make(self, left: list[int]) -> list[Entry]:
        entries = []
        while left:
            key = f"customer-{self._random.randrange(10_000)}"
            # A fifth of the records are parts of aggregates.
            is_alone = self._random.randrange(4 * AGGREGATE_RECORDS + 1)
            size = 1 if is_alone else min(AGGREGATE_RECORDS, len(left))
            taken, left = left[:size], left[size:]
            users = [put_records.Entry(b"%020d %80d" % (n, n), key) for n in taken]
            data = users[0].data if size == 1 else put_records.aggregate(users)
            entries.append(Entry(taken, key, data))
        return entries

    async def _put(self, entries: list[Entry]) -> list[Entry]:
        """Write entries, and return those that Kinesis throttled."""
        records = [{"Data": entry.data, "PartitionKey": entry.key} for entry in entries]
        try:
            answer = await self.kinesis.put_records(StreamARN=self.arn, Records=records)
        except Exception as error:
            numbers = (n for entry in entries for n in entry.numbers)
            self.counts.uncertain.update(numbers)
            if not self.is_failing:
                self.say(f"producing fails: {error}")
            self.is_failing = True
            return []
        self.is_failing = False
        at, refused = now(), list[Entry]()
        for entry, result in zip(entries, answer["Records"], strict=True):
            if "ErrorCode" in result:
                refused.append(entry)
            else:
                self._count(entry, result, at)
        return refused

    def _count(self, entry: Entry, result: dict[str, str], at: float) -> None:
        is_aggregate = len(entry.numbers) > 1
        self.counts.aggregates += is_aggregate
        shard = ShardKey(self.arn, result["ShardId"])
        for part, number in enumerate(entry.numbers):
            sub = part if is_aggregate else None
            position = Position(result["SequenceNumber"], sub)
            self.counts.add_produced(Produced(number, entry.key, shard, position, at))
