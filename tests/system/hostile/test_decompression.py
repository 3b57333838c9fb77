"""Test that a call of user code gets no more decompressed data than the buffer's limit.

Zlib compresses zeros to a thousandth. A batch of such records is small until they are
decoded.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Any
from uuid import UUID

import pytest

from kinesumer import Batch
from kinesumer.decoding.decoders import DECOMPRESSED
from kinesumer.decoding.glue import parse_glue
from kinesumer.model.positions import Position
from kinesumer.model.records import Record
from tests.support.delivery import deliver
from tests.support.handler_client import Runner, committed
from tests.support.world import World, in_virtual_time

LIMIT = 1 << 20  # the buffer's limit in these tests
HEADER = b"\x03\x05" + UUID(int=7).bytes


def bomb(size: int) -> bytes:
    """Return a record that decompresses to this many zeros."""
    return HEADER + zlib.compress(bytes(size))


class Decoding:
    """Decompresses one bomb for each record, and counts what it returned."""

    def __init__(self, size: int) -> None:
        self._data, self.size = bomb(size), size
        assert len(self._data) < size // 500

    def __call__(self, record: Record) -> bytes:
        return parse_glue(self._data, 16 << 20)[1]


def test_data_that_is_decompressed_is_counted() -> None:
    before = DECOMPRESSED.total
    parse_glue(bomb(5000), 16 << 20)
    assert DECOMPRESSED.total == before + 5000
    parse_glue(b"\x03\x00" + HEADER[2:] + b"plain", 16 << 20)
    assert DECOMPRESSED.total == before + 5000


@pytest.mark.parametrize(
    ("size", "records"), [(LIMIT // 4, 4), (LIMIT // 4 + 1, 4), (2 * LIMIT, 1)]
)
@in_virtual_time
async def test_a_batch_ends_where_its_data_has_filled_the_limit(
    world: World, size: int, records: int
) -> None:
    desk, owned = deliver(world, *range(1, 31), decode=Decoding(size))
    batches = desk.records.batches()
    found: list[str] = []
    while len(found) < 30:
        batch = await anext(batches)
        assert len(batch.records) == min(records, 30 - len(found))
        found += [record.sequence_number for record in batch.records]
    assert found == [str(number) for number in range(1, 31)]
    await desk.nothing_for(1)
    assert desk.done(owned) == Position("30")


class Log:
    """Handlers that take time, and note how much data they had at once."""

    def __init__(self) -> None:
        self.now = self.most = self.records = 0

    async def record(self, record: Record[Any]) -> None:
        await self._hold([record])

    async def batch(self, batch: Batch[Any]) -> None:
        await self._hold(batch.records)

    async def _hold(self, records: Any) -> None:
        size = sum(len(record.value) for record in records)
        self.now += size
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= size
        self.records += len(records)


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("name", ["record", "batch"])
@in_virtual_time
async def test_handlers_hold_no_more_than_the_limit_and_one_record_each(
    world: World, name: str, concurrency: int
) -> None:
    log, decode = Log(), Decoding(LIMIT // 3)
    world.put(*(f"{n}" for n in range(100)))
    runner = Runner(
        world,
        getattr(log, name),
        decode=decode,
        concurrency=concurrency,
        buffer_bytes=LIMIT,
    )
    await world.until(lambda: log.records == 100)
    await runner.leave()
    assert committed(world) == 100
    assert log.most <= LIMIT + concurrency * decode.size


class Failing(Decoding):
    """Fails after decompression at each third record."""

    def __call__(self, record: Record) -> bytes:
        value = super().__call__(record)
        if int(record.data) % 3 == 0:
            raise LookupError
        return value


@pytest.mark.parametrize("concurrency", [1, 4])
@in_virtual_time
async def test_the_room_of_records_that_fail_is_given_back(
    world: World, concurrency: int
) -> None:
    log = Log()
    world.put(*(f"{n}" for n in range(90)))
    runner = Runner(
        world,
        log.batch,
        decode=Failing(LIMIT // 3),
        concurrency=concurrency,
        dead_letters="file:unused",
        buffer_bytes=LIMIT,
    )
    await world.until(lambda: log.records == 60)
    assert log.most <= LIMIT + concurrency * LIMIT // 3
    await runner.leave()
    delivery: Any = runner.group.delivery
    [caller] = delivery.callers.by_arn.values()
    room = caller.executor._decoding._room
    assert room._used == 0
