"""Records are put in full requests; what fails is put again, in order if asked."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import AccessDeniedError, SourceUnavailableError
from kinesumer.producer.batching import (
    MOST,
    REQUEST_BYTES,
    REQUEST_RECORDS,
    PendingRecord,
    PutCounts,
    RecordProducer,
)
from kinesumer.simulation.event_loop import VirtualLoop
from kinesumer.wire.put_records import Entry, PutResult

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

TAKEN = PutResult(shard_id="shardId-0", sequence_number="1")
REFUSED = PutResult(error_code="ProvisionedThroughputExceededException")


def in_virtual_time(work: Coroutine[Any, Any, Any], seed: int = 1) -> Any:
    loop = VirtualLoop(random.Random(seed))
    result = loop.run(work)
    assert not loop.failures
    return result


class Kinesis:
    """Takes what it likes, and holds that it was never asked for too much."""

    def __init__(self, seed: int = 1, refuses: float = 0.0, fails: float = 0.0) -> None:
        self.chance = random.Random(seed)
        self.refuses, self.fails = refuses, fails
        self.requests: list[list[Entry]] = []
        self.taken: list[Entry] = []
        self.at_once = self.most_at_once = 0
        self.one_of_a_key = False

    async def put(self, entries: Sequence[Entry]) -> list[PutResult]:

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


def units(entries: Iterable[Entry]) -> list[PendingRecord]:
    return [
        PendingRecord(entry, entry.size, order_key=entry.partition_key)
        for entry in entries
    ]


async def put_all(
    kinesis: Kinesis, entries: Sequence[Entry], *, ordered: bool, part: int = 2000
) -> PutCounts:
    putter = RecordProducer(kinesis.put, ordered=ordered, chance=kinesis.chance)
    for start in range(0, len(entries), part):
        await putter.add(units(entries[start : start + part]))
    return await putter.finish()


def numbered(count: int, keys: int, size: int = 8) -> list[Entry]:
    return [
        Entry(str(number).encode().rjust(size), f"key-{number % keys}")
        for number in range(count)
    ]


def by_key(entries: Iterable[Entry]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for entry in entries:
        found.setdefault(entry.partition_key, []).append(entry.data)
    return found


def test_requests_are_full_of_records_or_of_bytes() -> None:
    kinesis = Kinesis()
    in_virtual_time(put_all(kinesis, numbered(1600, 100), ordered=False))
    assert sorted(map(len, kinesis.requests)) == [100, 500, 500, 500]
    kinesis = Kinesis()
    in_virtual_time(put_all(kinesis, numbered(12, 3, size=1 << 20), ordered=False))
    assert sorted(map(len, kinesis.requests)) == [4, 4, 4]


def test_a_record_larger_than_a_request_should_be_goes_alone() -> None:
    kinesis = Kinesis()
    entries = [*numbered(2, 2), Entry(bytes(9 << 20), "large"), *numbered(2, 2)]
    in_virtual_time(put_all(kinesis, entries, ordered=False))
    assert sorted(map(len, kinesis.requests)) == [1, 2, 2]


@given(
    seed=st.integers(0, 1000),
    count=st.integers(0, 3000),
    keys=st.integers(1, 700),
    refuses=st.sampled_from([0.0, 0.1, 0.6]),
    part=st.integers(1, 3000),
)
def test_every_record_is_taken_once_and_in_its_keys_order(
    seed: int, count: int, keys: int, refuses: float, part: int
) -> None:
    kinesis = Kinesis(seed, refuses)
    kinesis.one_of_a_key = True
    entries = numbered(min(count, 30 * keys), keys)
    counts = in_virtual_time(put_all(kinesis, entries, ordered=True, part=part), seed)
    assert by_key(kinesis.taken) == by_key(entries)
    assert counts.rows == counts.records == len(entries)


@given(
    seed=st.integers(0, 1000),
    count=st.integers(0, 5000),
    refuses=st.sampled_from([0.0, 0.1, 0.9]),
    part=st.integers(1, 3000),
)
def test_without_order_every_record_is_taken_once(
    seed: int, count: int, refuses: float, part: int
) -> None:
    kinesis = Kinesis(seed, refuses)
    entries = numbered(count, 50)
    counts = in_virtual_time(put_all(kinesis, entries, ordered=False, part=part), seed)
    assert sorted(e.data for e in kinesis.taken) == sorted(e.data for e in entries)
    refused = sum(map(len, kinesis.requests)) - count
    assert counts == PutCounts(
        count, count, sum(e.size for e in entries), len(kinesis.requests), refused
    )


def test_a_request_without_an_answer_is_put_again_in_order() -> None:
    kinesis = Kinesis(fails=0.5)
    entries = numbered(500, 7)
    in_virtual_time(put_all(kinesis, entries, ordered=True))
    assert by_key(kinesis.taken) == by_key(entries)


def test_a_full_stream_slows_its_writer_down() -> None:
    kinesis = Kinesis()
    in_virtual_time(put_all(kinesis, numbered(40_000, 100), ordered=False))
    assert kinesis.most_at_once == MOST
    putter: list[RecordProducer] = []

    async def throttled() -> None:
        kinesis = Kinesis(refuses=0.9)
        putter.append(RecordProducer(kinesis.put, ordered=False, chance=kinesis.chance))
        await putter[0].add(units(numbered(10_000, 100)))
        await putter[0].finish()
        assert kinesis.requests
        kinesis.most_at_once = 0
        await putter[0].add(units(numbered(2_000, 100)))
        await putter[0].finish()
        assert kinesis.most_at_once <= 2

    in_virtual_time(throttled())


def test_nothing_taken_for_minutes_fails_with_the_reason() -> None:
    kinesis = Kinesis(fails=1.0)
    with pytest.raises(SourceUnavailableError, match=r"no record for 3.* connection"):
        in_virtual_time(put_all(kinesis, numbered(10, 10), ordered=False))


def test_an_error_that_trying_again_cant_help_ends_everything() -> None:
    async def work() -> None:

        async def put(entries: Sequence[Entry]) -> list[PutResult]:
            if entries[0].partition_key == "key-0":
                raise AccessDeniedError("kinesis:PutRecords", "orders")
            await asyncio.sleep(3600)
            return []

        putter = RecordProducer(put, ordered=False, chance=random.Random(1))
        await putter.add(units(numbered(1000, 1000)))
        with pytest.raises(AccessDeniedError):
            await putter.finish()
        assert len(asyncio.all_tasks()) == 1

    in_virtual_time(work())


@pytest.mark.parametrize("count", [1, 500, 3000, 60_000])
def test_an_error_at_any_time_is_never_taken_for_success(count: int) -> None:
    async def put(entries: Sequence[Entry]) -> list[PutResult]:
        raise AccessDeniedError("kinesis:PutRecords", "orders")

    async def work() -> None:
        putter = RecordProducer(put, ordered=False, chance=random.Random(1))
        await putter.add(units(numbered(count, 1000, size=200)))
        await asyncio.sleep(1)
        await putter.finish()

    with pytest.raises(AccessDeniedError):
        in_virtual_time(work())


@given(seed=st.integers(0, 1000), count=st.integers(1, 3000), ordered=st.booleans())
def test_after_a_failure_what_is_left_and_what_was_taken_is_everything(
    seed: int, count: int, ordered: bool
) -> None:
    kinesis = Kinesis(seed, refuses=0.3)
    entries = numbered(count, 40)

    async def work() -> list[PendingRecord]:
        async def put(entries: Sequence[Entry]) -> list[PutResult]:
            if len(kinesis.taken) > count // 2:
                raise AccessDeniedError("kinesis:PutRecords", "orders")
            return await kinesis.put(entries)

        putter = RecordProducer(put, ordered=ordered, chance=kinesis.chance)
        with pytest.raises(AccessDeniedError):
            await putter.add(units(entries))
            await putter.send()
            await putter.finish()
            raise AccessDeniedError("kinesis:PutRecords", "all were taken first")
        return putter.unacknowledged()

    left = in_virtual_time(work(), seed)
    told = Counter(unit.entry.data for unit in left)
    taken = Counter(entry.data for entry in kinesis.taken)
    assert told.keys() | taken.keys() == {entry.data for entry in entries}
    assert max(told.values(), default=1) == 1


def test_what_waits_for_a_full_request_goes_when_it_is_told_to() -> None:
    kinesis = Kinesis()

    async def work() -> None:
        putter = RecordProducer(kinesis.put, ordered=True, chance=kinesis.chance)
        await putter.add(units(numbered(3, 3)))
        await asyncio.sleep(60)
        assert not kinesis.requests
        await putter.send()
        await asyncio.sleep(60)
        assert len(kinesis.taken) == 3
        assert not putter.unacknowledged()

    in_virtual_time(work())
