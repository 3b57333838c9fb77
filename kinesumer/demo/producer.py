"""Writes numbered records to all streams at a rate, one in five as KPL aggregates."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.demo.counts import Produced
from kinesumer.demo.record_log import shard_number
from kinesumer.wire.put_records import UserRecord, aggregate

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.demo.counts import Ledger

TICK_SECONDS = 0.2
AGGREGATED_SHARE = 0.2
AGGREGATE_RECORDS = 8
BATCH = 400
"""Records per PutRecords call; Kinesis takes 500."""
FILLER = b"." * 80


class Put(NamedTuple):
    """One Kinesis record to be written, and the numbers in it."""

    numbers: list[int]
    key: str
    data: bytes


class Producer:
    """One per stream; they share the numbering."""

    def __init__(
        self,
        stream: int,
        arn: str,
        kinesis: Any,
        ledger: Ledger,
        say: Callable[[str], None],
    ) -> None:
        self._stream, self._arn = stream, arn
        self._kinesis = kinesis
        self._ledger = ledger
        self._say = say
        self._random = random.Random(stream)
        self._failing = False

    async def run(self, rate: float, numbers: Numbers, stop: asyncio.Event) -> None:
        """Produce until told to stop; every record is either noted or uncertain."""
        started = time.monotonic()
        given, refused = 0, list[Put]()
        while not stop.is_set():
            due = int((time.monotonic() - started) * rate) - given
            given += due
            puts = refused + self._make(numbers.take(due))
            refused = []
            for first in range(0, len(puts), BATCH):
                refused += await self._put(puts[first : first + BATCH])
            await asyncio.sleep(TICK_SECONDS)
        while refused:
            await asyncio.sleep(TICK_SECONDS)
            refused = await self._put(refused[:BATCH]) + refused[BATCH:]

    def _make(self, numbers: range) -> list[Put]:
        puts, left = [], list(numbers)
        while left:
            key = f"customer-{self._random.randrange(10_000)}"
            size = 1
            # An aggregate of eight counts eight times.
            share = AGGREGATED_SHARE / AGGREGATE_RECORDS
            if self._random.random() < share / (share + 1 - AGGREGATED_SHARE):
                size = min(AGGREGATE_RECORDS, len(left))
            taken, left = left[:size], left[size:]
            users = [UserRecord(b"%020d" % n + FILLER, key) for n in taken]
            data = users[0].data if size == 1 else aggregate(users)
            puts.append(Put(taken, key, data))
        return puts

    async def _put(self, puts: list[Put]) -> list[Put]:
        """Write records; return those that Kinesis refused for now."""
        records = [{"Data": put.data, "PartitionKey": put.key} for put in puts]
        try:
            answer = await self._kinesis.put_records(
                StreamARN=self._arn, Records=records
            )
        except Exception as error:
            self._ledger.uncertain.update(n for put in puts for n in put.numbers)
            if not self._failing:
                self._say(f"producing fails: {error}")
            self._failing = True
            return []
        self._failing = False
        now, refused = time.monotonic(), []
        for put, result in zip(puts, answer["Records"], strict=True):
            if "ErrorCode" in result:
                refused.append(put)
            else:
                self._note(put, result, now)
        return refused

    def _note(self, put: Put, result: dict[str, str], now: float) -> None:
        self._ledger.aggregates += len(put.numbers) > 1
        shard = shard_number(result["ShardId"])
        for part, number in enumerate(put.numbers):
            self._ledger.put(
                Produced(
                    number, self._stream, shard, result["SequenceNumber"], part, now
                )
            )


class Numbers:
    """Counts up from 1."""

    def __init__(self) -> None:
        self._next = 1

    def take(self, count: int) -> range:
        """Return the next numbers."""
        first, self._next = self._next, self._next + count
        return range(first, self._next)
