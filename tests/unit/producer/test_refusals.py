"""Test that a record that Kinesis refuses fails alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import (
    FailedRecord,
    PutFailedError,
    RecordRefusedError,
    SourceUnavailableError,
)
from kinesumer.model.streams import StreamInfo
from kinesumer.producer.record_producer import RecordProducer
from kinesumer.wire.put_records import Entry, EntryResult, refusal
from tests.support.toy_stream import INFO, TAKEN, PutTarget
from tests.support.world import World, run

SMALL = INFO._replace(max_record_bytes=100)


class Strict(PutTarget):
    """Refuses a whole request if one of its records is too large, or of a bad kind."""

    def __init__(self, info: StreamInfo = SMALL) -> None:
        super().__init__(info)
        self.taken: list[bytes] = []
        self.requests = self.failing = 0

    async def describe(self) -> StreamInfo:
        if self.failing:
            self.failing -= 1
            raise SourceUnavailableError("connection reset")
        return await super().describe()

    async def put_records(self, records: Sequence[Entry]) -> list[EntryResult]:
        self.requests += 1
        for entry in records:
            if refusal(entry, self.info) or entry.data.startswith(b"bad"):
                raise RecordRefusedError("ValidationException: a record is invalid")
        self.taken += [entry.data for entry in records]
        return [TAKEN] * len(records)


def producer_of(stream: Strict, **more: Any) -> RecordProducer:
    given = {"ordered": False, "chance": random.Random(1), **more}
    # The producer knows a description from before a change of the largest record.
    return RecordProducer(stream, INFO, **given)


@given(
    kinds=st.lists(st.sampled_from(["good", "large", "bad"]), max_size=60),
    ordered=st.booleans(),
    failing=st.integers(0, 2),
)
def test_only_refused_records_fail_and_each_is_named_with_its_reason(
    kinds: list[str], ordered: bool, failing: int
) -> None:
    stream = Strict()
    stream.failing = failing
    size = {"good": 50, "large": 101, "bad": 50}
    entries = [
        Entry(f"{kind}-{place}".encode().ljust(size[kind]), f"k{place % 7}")
        for place, kind in enumerate(kinds)
    ]
    refused: list[FailedRecord] = []

    async def work() -> None:
        producer = producer_of(stream, ordered=ordered, on_refused=refused.append)
        futures = [await producer.add(entry) for entry in entries]
        counts = await producer.flush()
        assert counts.rows == kinds.count("good")
        assert counts.requests == stream.requests
        assert producer.buffered_bytes == 0
        assert [f.exception() is None for f in futures] == [
            kind == "good" for kind in kinds
        ]

    run(work())
    good = [entry.data for entry in entries if entry.data.startswith(b"good")]
    assert sorted(stream.taken) == sorted(good)
    assert sorted(r.data for r in refused) == sorted(
        entry.data for entry in entries if entry.data not in good
    )
    for record in refused:
        expected = "a record is invalid"
        if record.data.startswith(b"large"):
            expected = "more than the 100 that the stream allows"
        assert expected in record.reason


async def test_a_full_request_loses_one_record_to_a_smaller_limit(world: World) -> None:
    stream = Strict()
    producer = producer_of(stream)
    for number in range(500):
        size = 101 if number == 321 else 50
        await producer.add(Entry(b"%d".ljust(size) % number, f"k{number}"))
    with pytest.raises(PutFailedError, match="1 of the records") as caught:
        await producer.flush()
    assert isinstance(caught.value.__cause__, RecordRefusedError)
    # The producer knows the new limit, and works as before.
    assert producer.stream.info == SMALL
    await (await producer.add(Entry(b"more", "key")))
    assert await producer.flush()
    assert len(stream.taken) == 500
    assert (stream.requests, stream.descriptions) == (3, 1)


async def test_a_cause_that_no_description_tells_takes_few_requests_to_find(
    world: World,
) -> None:
    stream = Strict()
    producer = producer_of(stream)
    for number in range(500):
        data = b"bad" if number == 77 else b"good"
        await producer.add(Entry(data, f"k{number}"))
    with pytest.raises(PutFailedError, match="1 of the records"):
        await producer.flush()
    assert len(stream.taken) == 499
    assert stream.requests <= 20  # two for each halving of 500


async def test_an_ordered_key_goes_on_after_a_refused_record(world: World) -> None:
    stream = Strict()
    producer = producer_of(stream, ordered=True)
    futures = [
        await producer.add(Entry(data, "one key"))
        for data in (b"1", b"bad", b"2", bytes(200), b"3")
    ]
    for future, fails in zip(futures, (0, 1, 0, 1, 0), strict=True):
        try:
            await future
            assert not fails
        except PutFailedError as error:
            assert fails
            assert len(error.records) == 1
    await producer.flush()
    assert stream.taken == [b"1", b"2", b"3"]
