"""Test that aggregates follow a reshard: nothing is lost to the KCL, in order."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.model.streams import Shard
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.wire.put_records import Entry
from tests.support.toy_stream import ToyStream


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
        producer = stream.producer(ordered=ordered)
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


def test_records_are_not_put_again_if_no_reshard_is_listed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = ToyStream(1, shards=2)
    listed = list(stream.shards)
    stream.split()

    async def list_shards() -> list[Shard]:
        return listed

    monkeypatch.setattr(stream, "list_shards", list_shards)

    async def work() -> None:
        producer = stream.producer(ordered=False, shards=listed)
        for number in range(200):
            await producer.add(Entry(b"%d" % number, str(number)))
        assert (await producer.flush()).rows == 200

    with caplog.at_level(logging.WARNING):
        VirtualLoop(random.Random(1)).run(work())
    assert "lists no reshard" in caplog.text
    put = Counter(stored.partition_key for _, _, stored in stream.stored)
    assert max(put.values()) == 1
