"""Test that aggregates follow a reshard: nothing is lost to the KCL, in order."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.records import Fence, Record, Source
from kinesumer.model.streams import HASH_KEYS, Shard, ShardKey
from kinesumer.producer.aggregation import Aggregator
from kinesumer.producer.record_producer import RecordProducer
from kinesumer.simulation.event_loop import VirtualLoop
from kinesumer.wire.aggregation import hash_key_of, open_records
from kinesumer.wire.put_records import Entry, EntryResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

REFUSED = EntryResult(error_code="ProvisionedThroughputExceededException")


class ToyStream:
    """A stream that can be resharded, and rejects some records and requests."""

    def __init__(self, seed: int, shards: int) -> None:
        self.chance = random.Random(seed)
        self.refuses = 0.0
        self.stored: list[tuple[Shard, str, Entry]] = []
        edges = [number * HASH_KEYS // shards for number in range(shards + 1)]
        self._made = 0
        self.shards: list[Shard] = []
        for first, end in pairwise(edges):
            self._add(first, end - 1)

    def _add(self, first: int, last: int) -> None:
        self.shards.append(Shard(f"shardId-{self._made}", first, last))
        self._made += 1

    def split(self) -> None:
        index = self.chance.choice(
            [i for i, shard in enumerate(self.shards) if not shard.closed]
        )
        _, first, last, _, _ = self.shards[index]
        middle = self.chance.randint(first, last - 1)
        self.shards[index] = self.shards[index]._replace(closed=True)
        self._add(first, middle)
        self._add(middle + 1, last)

    def merge(self) -> None:
        opened = sorted(
            (s.first_hash, i) for i, s in enumerate(self.shards) if not s.closed
        )
        (first, left), (_, right) = opened[:2]
        last = self.shards[right].last_hash
        for index in (left, right):
            self.shards[index] = self.shards[index]._replace(closed=True)
        self._add(first, last)

    async def list_shards(self) -> list[Shard]:
        await asyncio.sleep(self.chance.random())
        if self.chance.random() < self.refuses:
            raise SourceUnavailableError("connection reset")
        return list(self.shards)

    async def put(self, entries: Sequence[Entry]) -> list[EntryResult]:
        await asyncio.sleep(self.chance.random() / 5)
        return [self._put(entry) for entry in entries]

    def _put(self, entry: Entry) -> EntryResult:
        if self.chance.random() < self.refuses:
            return REFUSED
        hash_key = hash_key_of(entry.partition_key, entry.explicit_hash_key)
        [shard] = [
            s
            for s in self.shards
            if not s.closed and s.first_hash <= hash_key <= s.last_hash
        ]
        number = str(len(self.stored))
        self.stored.append((shard, number, entry))
        return EntryResult(shard_id=shard.shard_id, sequence_number=number)

    def read_as_the_kcl(self) -> list[tuple[str, Record]]:
        """Return each shard's id and user record, except for records outside of it."""
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
                if shard.first_hash
                <= hash_key_of(record.partition_key or "", record.explicit_hash_key)
                <= shard.last_hash
            ]
        return found


def producer_of(stream: ToyStream, *, ordered: bool) -> RecordProducer:
    return RecordProducer(
        stream.put,
        ordered=ordered,
        chance=stream.chance,
        aggregator=Aggregator(stream.shards),
        list_shards=stream.list_shards,
    )


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    ordered=st.booleans(),
    refuses=st.sampled_from([0.0, 0.3]),
    merges=st.booleans(),
)
def test_the_kcl_reads_each_record_once_and_in_order_during_reshards(
    seed: int, ordered: bool, refuses: float, merges: bool
) -> None:
    stream = ToyStream(seed, shards=6)
    stream.refuses = refuses
    entries = [Entry(b"%05d" % n, f"key-{n % 31}") for n in range(600)]

    async def work() -> None:
        producer = producer_of(stream, ordered=ordered)
        futures = []
        for number, entry in enumerate(entries):
            futures.append(await producer.add(entry))
            if number % 10 == 0:
                await asyncio.sleep(stream.chance.random() / 10)
            if number % 150 == 149:
                stream.merge() if merges else stream.split()
        counts = await producer.flush()
        assert counts.rows == len(entries)
        assert producer.buffered_bytes == 0
        results = [
            (r.shard_id, r.sequence_number, r.sub_sequence_number, entry.data)
            for r, entry in zip(await asyncio.gather(*futures), entries, strict=True)
        ]
        read = stream.read_as_the_kcl()
        assert sorted(map(str, results)) == sorted(
            str((shard, r.sequence_number, r.sub_sequence_number, r.data))
            for shard, r in read
        )
        if ordered:
            for key in {entry.partition_key for entry in entries}:
                data = [r.data for _, r in read if r.partition_key == key]
                assert data == sorted(data)

    loop = VirtualLoop(random.Random(seed))
    loop.run(work())
    assert not loop.failures


def test_a_stream_that_ignores_keys_gets_each_record_once() -> None:
    stream = ToyStream(1, shards=4)

    async def work() -> None:
        producer = RecordProducer(
            stream.put,
            ordered=False,
            chance=stream.chance,
            aggregator=Aggregator([]),
            list_shards=stream.list_shards,
        )
        for number in range(200):
            await producer.add(Entry(b"x", str(number)))
        assert (await producer.flush()).records == 1

    VirtualLoop(random.Random(1)).run(work())


def test_records_are_not_put_again_if_no_reshard_is_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = ToyStream(1, shards=2)
    listed = list(stream.shards)
    stream.split()

    async def list_shards() -> list[Shard]:
        return listed

    async def work() -> None:
        producer = RecordProducer(
            stream.put,
            ordered=False,
            chance=stream.chance,
            aggregator=Aggregator(listed),
            list_shards=list_shards,
        )
        for number in range(200):
            await producer.add(Entry(b"%d" % number, str(number)))
        assert (await producer.flush()).rows == 200

    with caplog.at_level(logging.WARNING):
        VirtualLoop(random.Random(1)).run(work())
    assert "lists no reshard" in caplog.text
    put = Counter(stored.partition_key for _, _, stored in stream.stored)
    assert max(put.values()) == 1
