"""Provide streams in memory for producers, and a parser of the lines to produce."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

from kinesumer.errors import FailedRecord, RecordRefusedError, SourceUnavailableError
from kinesumer.model.records import Fence, Record, Source
from kinesumer.model.streams import HASH_KEYS, Shard, ShardKey, StreamInfo
from kinesumer.ops.group.produce import LineParser, parse_key
from kinesumer.producer.record_producer import RecordProducer
from kinesumer.telemetry.api import Telemetry
from kinesumer.wire.aggregation import MAGIC, hash_key_of
from kinesumer.wire.put_records import Entry, EntryResult, refusal
from tests.support.aggregates import open_records

REFUSED = EntryResult(error_code="ProvisionedThroughputExceededException")


class ToyStream:
    """A stream that can be resharded, and rejects some records and requests.

    It may distribute records by AUTO, and its largest record may change.
    """

    def __init__(self, seed: int, shards: int) -> None:
        self.chance = random.Random(seed)
        self.refuses = 0.0
        self.info = INFO
        self.routes_by_key = True
        self.stored: list[tuple[Shard, str, Entry]] = []
        self.descriptions = self.listings = 0
        edges = [number * HASH_KEYS // shards for number in range(shards + 1)]
        self._made = 0
        self.shards: list[Shard] = []
        for first, end in pairwise(edges):
            self._add(first, end - 1)

    def producer(
        self,
        *,
        ordered: bool = False,
        shards: Sequence[Shard] | None = None,
        on_refused: Callable[[FailedRecord], object] | None = None,
        telemetry: Telemetry | None = None,
    ) -> RecordProducer:
        """Return a producer that aggregates."""
        return RecordProducer(
            self,
            self.info,
            ordered=ordered,
            chance=self.chance,
            shards=self.shards if shards is None else shards,
            on_refused=on_refused,
            telemetry=telemetry,
        )

    def distribute(self, *, by_key: bool) -> None:
        self.routes_by_key = by_key
        self.info = self.info._replace(routes_by_key=by_key)

    async def describe(self) -> StreamInfo:
        self.descriptions += 1
        info = self.info
        await asyncio.sleep(self.chance.random())
        if self.chance.random() < self.refuses:
            raise SourceUnavailableError("connection reset")
        return info

    def _add(self, first: int, last: int) -> None:
        self.shards.append(Shard(f"shardId-{self._made}", first, last))
        self._made += 1

    def split(self) -> None:
        index = self.chance.choice(
            [i for i, shard in enumerate(self.shards) if not shard.closed]
        )
        _, first, last, _, _ = self.shards[index]
        middle = self.chance.randint(first, last - 1)
        self.shards[index] = self.shards[index]._replace(ending_sequence_number="9")
        self._add(first, middle)
        self._add(middle + 1, last)

    def opened(self) -> list[Shard]:
        return [shard for shard in self.shards if not shard.closed]

    def merge(self) -> None:
        opened = sorted(
            (s.first_hash, i) for i, s in enumerate(self.shards) if not s.closed
        )
        (first, left), (_, right) = opened[:2]
        last = self.shards[right].last_hash
        for index in (left, right):
            self.shards[index] = self.shards[index]._replace(ending_sequence_number="9")
        self._add(first, last)

    async def list_shards(self) -> list[Shard]:
        self.listings += 1
        await asyncio.sleep(self.chance.random())
        if self.chance.random() < self.refuses:
            raise SourceUnavailableError("connection reset")
        return list(self.shards)

    async def put_records(self, records: Sequence[Entry]) -> list[EntryResult]:
        await asyncio.sleep(self.chance.random() / 5)
        if any(refusal(entry, self.info) for entry in records):
            raise RecordRefusedError("1 validation error detected")
        return [self._put(entry) for entry in records]

    def _put(self, entry: Entry) -> EntryResult:
        if self.chance.random() < self.refuses:
            return REFUSED
        shard = self._route(entry)
        number = str(len(self.stored))
        self.stored.append((shard, number, entry))
        return EntryResult(shard_id=shard.shard_id, sequence_number=number)

    def _route(self, entry: Entry) -> Shard:
        opened = self.opened()
        if not self.routes_by_key:
            return self.chance.choice(opened)
        hash_key = hash_key_of(entry.partition_key or "", entry.explicit_hash_key)
        [shard] = [s for s in opened if s.first_hash <= hash_key <= s.last_hash]
        return shard

    def aggregates(self) -> int:
        return sum(entry.data.startswith(MAGIC) for _, _, entry in self.stored)

    def read_as_the_kcl(self) -> list[tuple[str, Record]]:
        """Return each shard's id and user record.

        Leave out those of aggregates that are outside of the shard.
        """
        found = []
        for shard, number, entry in self.stored:
            source = Source(
                Fence(ShardKey("arn/x", shard.shard_id), 0),
                shard.first_hash,
                shard.last_hash,
            )
            whole = Record(number, entry.data, entry.partition_key)
            found += [
                (shard.shard_id, record)
                for record in open_records([whole], source).records
                if record.sub_sequence_number is None
                or shard.first_hash
                <= hash_key_of(record.partition_key or "", record.explicit_hash_key)
                <= shard.last_hash
            ]
        return found


INFO = StreamInfo("arn:aws:kinesis:us-east-1:123456789012:stream/orders", "ACTIVE", 0.0)
TAKEN = EntryResult(shard_id="shardId-0", sequence_number="1")


class PutTarget:
    """Takes all records. Tests override ``put_records()``."""

    def __init__(self, info: StreamInfo = INFO) -> None:
        self.info = info
        self.descriptions = self.listings = 0

    async def describe(self) -> StreamInfo:
        self.descriptions += 1
        return self.info

    async def list_shards(self) -> Sequence[Shard]:
        self.listings += 1
        return []

    async def put_records(self, records: Sequence[Entry]) -> Sequence[EntryResult]:
        return [TAKEN] * len(records)


def parser(*, jsonl: bool = False, key: str | None = None) -> LineParser:
    """Return a parser of lines, whose random keys are the same in each run."""
    key = key if key or jsonl else "random"
    source = None if key is None else parse_key(key, random.Random(1))
    return LineParser(jsonl=jsonl, key=source)
