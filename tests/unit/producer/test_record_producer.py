"""Test full requests, retries of failed records, and the order of each key."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import (
    AccessDeniedError,
    KinesumerError,
    PutFailedError,
    SourceUnavailableError,
)
from kinesumer.producer.pending import REQUEST_BYTES, REQUEST_RECORDS
from kinesumer.producer.put_stream import PutCounts
from kinesumer.producer.record_producer import (
    MAX_REQUESTS,
    RECORD_COST_BYTES,
    RecordProducer,
)
from kinesumer.wire.put_records import Entry, EntryResult
from tests.support.producers import add_all
from tests.support.toy_stream import INFO, TAKEN, PutTarget
from tests.support.world import World, run

REFUSED = EntryResult(error_code="ProvisionedThroughputExceededException")


class Kinesis(PutTarget):
    """Accepts some of the records, and checks the size of each request."""

    def __init__(self, seed: int = 1, refuses: float = 0.0, fails: float = 0.0) -> None:
        super().__init__()
        self.chance = random.Random(seed)
        self.refuses, self.fails = refuses, fails
        self.requests: list[list[Entry]] = []
        self.taken: list[Entry] = []
        self.at_once = self.most_at_once = 0
        self.one_of_a_key = False

    async def put_records(self, entries: Sequence[Entry]) -> list[EntryResult]:
        self.requests.append(list(entries))
        assert 0 < len(entries) <= REQUEST_RECORDS
        size = sum(entry.size for entry in entries)
        assert size <= REQUEST_BYTES or len(entries) == 1
        if self.one_of_a_key:
            assert max(Counter(e.partition_key for e in entries).values()) == 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.chance.random())
        self.at_once -= 1
        if self.chance.random() < self.fails:
            raise SourceUnavailableError("connection reset")
        results = []
        for entry in entries:
            if self.chance.random() < self.refuses:
                results.append(REFUSED)
            else:
                self.taken.append(entry)
                results.append(TAKEN)
        return results


def producer_of(kinesis: Kinesis, **options: Any) -> RecordProducer:
    """Return a producer, which keeps no order unless the options say so."""
    given = {"ordered": False, "chance": kinesis.chance, **options}
    return RecordProducer(kinesis, INFO, **given)


async def put_all(
    kinesis: Kinesis, entries: Sequence[Entry], *, ordered: bool, pause: float = 0.0
) -> PutCounts:
    producer = producer_of(kinesis, ordered=ordered)
    for start in range(0, len(entries), 700):
        await add_all(producer, entries[start : start + 700])
        await asyncio.sleep(pause)
    return await producer.flush()


def numbered(count: int, keys: int, size: int = 8) -> list[Entry]:
    return [
        Entry(str(number).encode().rjust(size), f"key-{number % keys}")
        for number in range(count)
    ]


def by_key(entries: Iterable[Entry]) -> dict[str | None, list[bytes]]:
    found: dict[str | None, list[bytes]] = {}
    for entry in entries:
        found.setdefault(entry.partition_key, []).append(entry.data)
    return found


LARGE = Entry(bytes(9 << 20), "large")


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (numbered(1600, 100), [100, 500, 500, 500]),
        (numbered(12, 3, size=1 << 20), [4, 4, 4]),
        # A record that exceeds the size of a request is sent alone.
        ([*numbered(2, 2), LARGE, *numbered(2, 2)], [1, 2, 2]),
    ],
    ids=["records", "bytes", "large"],
)
def test_requests_are_full_of_records_or_of_bytes(
    entries: list[Entry], expected: list[int]
) -> None:
    kinesis = Kinesis()
    run(put_all(kinesis, entries, ordered=False))
    assert sorted(map(len, kinesis.requests)) == expected


@given(
    seed=st.integers(0, 1000),
    count=st.integers(0, 1500),
    keys=st.integers(1, 700),
    refuses=st.sampled_from([0.0, 0.1, 0.7]),
    pause=st.sampled_from([0.0, 0.3]),
    ordered=st.booleans(),
)
def test_each_record_is_accepted_once_and_in_its_keys_order_if_requested(
    seed: int, count: int, keys: int, refuses: float, pause: float, ordered: bool
) -> None:
    kinesis = Kinesis(seed, refuses)
    kinesis.one_of_a_key = ordered
    entries = numbered(min(count, 30 * keys), keys)
    counts = run(put_all(kinesis, entries, ordered=ordered, pause=pause), seed)
    assert sorted(e.data for e in kinesis.taken) == sorted(e.data for e in entries)
    if ordered:
        assert by_key(kinesis.taken) == by_key(entries)
    sent = sum(map(len, kinesis.requests))
    assert counts == PutCounts(
        rows=len(entries),
        records=len(entries),
        bytes=sum(e.size for e in entries),
        requests=len(kinesis.requests),
        retried=sent - len(entries),
    )


def test_a_request_without_an_answer_is_put_again_in_order() -> None:
    kinesis = Kinesis(fails=0.5)
    entries = numbered(500, 7)
    run(put_all(kinesis, entries, ordered=True))
    assert by_key(kinesis.taken) == by_key(entries)


def test_a_full_stream_slows_its_writer_down() -> None:
    kinesis = Kinesis()
    run(put_all(kinesis, numbered(20_000, 100), ordered=False))
    assert kinesis.most_at_once == MAX_REQUESTS

    async def throttled() -> None:
        kinesis = Kinesis(refuses=0.9)
        producer = producer_of(kinesis)
        for count in (5_000, 2_000):
            kinesis.most_at_once = 0
            await add_all(producer, numbered(count, 100))
            await producer.flush()
        assert 0 < kinesis.most_at_once <= 2

    run(throttled())


async def test_memory_is_limited_and_a_cancelled_add_adds_nothing(world: World) -> None:
    kinesis = Kinesis()
    most = 100 * (10 + RECORD_COST_BYTES)
    producer = producer_of(kinesis, max_buffer_bytes=most)
    await add_all(producer, numbered(100, 10, size=5))
    assert producer.buffered_bytes == most
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.add(Entry(b"late", "key")), 0.0001)
    await add_all(producer, numbered(1000, 10, size=5))
    assert producer.buffered_bytes <= most
    assert (await producer.flush()).rows == len(kinesis.taken) == 1100
    assert producer.buffered_bytes == 0


def test_a_batch_fails_if_kinesis_accepts_nothing_for_minutes() -> None:
    kinesis = Kinesis(fails=1.0)
    with pytest.raises(PutFailedError, match=r"no record for 3.* connection") as caught:
        run(put_all(kinesis, numbered(10, 10), ordered=False))
    assert [record.data for record in caught.value.records] == [
        entry.data for entry in numbered(10, 10)
    ]


class Unsigned(Kinesis):
    """Refuses the credentials for the first hour."""

    async def put_records(self, entries: Sequence[Entry]) -> list[EntryResult]:
        if asyncio.get_running_loop().time() > 3600:
            return await super().put_records(entries)
        error = SourceUnavailableError("AWS has refused the credentials")
        error.lacks_credentials = True
        raise error


@pytest.mark.parametrize("waits", [False, True])
def test_only_time_with_valid_credentials_counts_if_that_is_wanted(waits: bool) -> None:
    kinesis = Unsigned(fails=0.5)

    async def work() -> int:
        producer = producer_of(kinesis, waits_for_credentials=waits)
        await add_all(producer, numbered(10, 10))
        return (await producer.flush()).rows

    if waits:
        assert run(work()) == 10
    else:
        with pytest.raises(PutFailedError, match="refused the credentials"):
            run(work())


class Denying(Kinesis):
    """Denies access after some records were accepted, until it is repaired."""

    limit = 0

    async def put_records(self, entries: Sequence[Entry]) -> list[EntryResult]:
        if len(self.taken) >= self.limit:
            raise AccessDeniedError("kinesis:PutRecords", "orders")
        return await super().put_records(entries)


# Of so many records, a request always leaves some for the one that is denied.
@given(seed=st.integers(0, 1000), count=st.integers(60, 1200), ordered=st.booleans())
def test_after_a_failure_each_record_was_accepted_or_is_in_the_error(
    seed: int, count: int, ordered: bool
) -> None:
    kinesis = Denying(seed, refuses=0.3)
    kinesis.limit = count // 2
    entries = numbered(count, 40)

    async def work() -> None:
        producer = producer_of(kinesis, ordered=ordered, linger_seconds=3600.0)
        await add_all(producer, entries)
        with pytest.raises(PutFailedError) as caught:
            await producer.flush()
        assert isinstance(caught.value.__cause__, AccessDeniedError)
        failed = [record.data for record in caught.value.records]
        taken = {entry.data for entry in kinesis.taken}
        assert {*failed} | taken == {entry.data for entry in entries}
        assert failed == [entry.data for entry in entries if entry.data in {*failed}]
        # The error is raised once. After a repair, the producer works again.
        kinesis.limit = 10**6
        future = await producer.add(Entry(b"more", "key"))
        await producer.flush()
        assert future.done()
        assert len(asyncio.all_tasks()) == 1

    run(work(), seed)


async def test_the_next_add_raises_an_earlier_failure(world: World) -> None:
    kinesis = Denying()
    producer = producer_of(kinesis)
    await producer.add(Entry(b"first", "key"))
    await asyncio.sleep(1)
    with pytest.raises(PutFailedError) as caught:
        await producer.add(Entry(b"second", "key"))
    assert [record.data for record in caught.value.records] == [b"first"]
    assert "access denied" in caught.value.records[0].reason


async def test_a_failure_that_somebody_waits_for_is_raised_only_there(
    world: World,
) -> None:
    kinesis = Denying()
    producer = producer_of(kinesis)
    futures = await add_all(producer, numbered(3, 3))
    results = await asyncio.gather(*futures[:2], return_exceptions=True)
    assert [type(result) for result in results] == [PutFailedError] * 2
    with pytest.raises(PutFailedError) as caught:
        await producer.flush()
    assert [record.data for record in caught.value.records] == [b"       2"]
    with pytest.raises(PutFailedError, match="1 of the records"):
        futures[2].result()


async def test_cancelling_the_wait_for_a_result_does_not_cancel_the_put(
    world: World,
) -> None:
    kinesis = Kinesis()
    producer = producer_of(kinesis)
    future = await producer.add(Entry(b"one", "key"))
    with pytest.raises(KinesumerError, match="await the future"):
        future.result()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(future, 0.01)
    assert await future == ("shardId-0", "1", None)
    assert len(kinesis.taken) == 1


async def test_waiting_records_are_sent_after_the_linger_time(world: World) -> None:
    kinesis = Kinesis()
    producer = producer_of(kinesis, ordered=True, linger_seconds=5.0)
    await add_all(producer, numbered(3, 3))
    await asyncio.sleep(4.9)
    assert not kinesis.requests
    await asyncio.sleep(5)
    assert len(kinesis.taken) == 3
    assert not producer.unacknowledged()


async def test_flush_waits_only_for_records_that_were_added_before(
    world: World,
) -> None:
    kinesis = Kinesis()
    producer = producer_of(kinesis)

    async def add_forever() -> None:
        while True:
            await producer.add(Entry(b"more", "key"))
            await asyncio.sleep(0.01)

    endless = asyncio.create_task(add_forever())
    await asyncio.sleep(5)
    await asyncio.wait_for(producer.flush(), 10)
    endless.cancel()
    await producer.flush()


async def test_an_add_that_waits_for_memory_is_refused_when_the_producer_ends(
    world: World,
) -> None:
    kinesis = Kinesis()
    producer = producer_of(kinesis, max_buffer_bytes=1)
    await producer.add(Entry(b"one", "key"))
    waiting = asyncio.create_task(producer.add(Entry(b"two", "key")))
    await asyncio.sleep(0)
    await producer.abandon(KinesumerError("the end"))
    with pytest.raises(PutFailedError):
        await waiting
    with pytest.raises(KinesumerError, match="the end"):
        await producer.add(Entry(b"three", "key"))
