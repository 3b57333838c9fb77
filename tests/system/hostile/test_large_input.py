"""Test that memory and work grow in proportion to the input, also decompressed."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kinesumer import Batch
from kinesumer.coordination.leader import Leader
from kinesumer.coordination.membership import PRUNE_BATCH_ROWS, Pruner
from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.core import lineage, plan
from kinesumer.core.liveness import HeartbeatWatch, Lease
from kinesumer.decoding.decoders import DECOMPRESSED
from kinesumer.decoding.glue import parse_glue
from kinesumer.model.positions import Position
from kinesumer.model.records import Record, memory_size
from kinesumer.model.rows import MemberRow, Row, StreamRow
from kinesumer.model.streams import HASH_KEYS, Shard, Start
from kinesumer.spark.options.table import COLUMNS
from kinesumer.spark.rows import Columns, Slice, rows_of
from kinesumer.wire import rows, writes
from kinesumer.wire.aggregation import MAGIC
from kinesumer.wire.records import decode_page
from tests.support.aggregates import field, frame, open_records
from tests.support.delivery import deliver
from tests.support.faulty import FaultySource
from tests.support.handler_client import Runner, committed
from tests.support.row_edits import put
from tests.support.spark_reading import schema
from tests.support.steps import growth, peak_bytes
from tests.support.world import APP, ARN, World
from tests.system.hostile.strategies import SHARD, UPPER_HALF, user

MEGABYTE, GIGABYTE = 1 << 20, 1 << 30


# --- pages ---


def page_of_tiny_records(size: int) -> bytes:
    """Return an answer of this many bytes whose records hold one byte each."""
    entry = (
        b'{"ApproximateArrivalTimestamp":1732531200.789,"Data":"eA==",'
        b'"PartitionKey":"k","SequenceNumber":"%d"}'
    )
    count = size // len(entry % 10**55)
    records = b",".join([entry % (10**55 + n) for n in range(count)])
    return b'{"Records":[%s],"MillisBehindLatest":0}' % records


def test_one_byte_records_need_at_most_the_memory_that_the_buffer_counts() -> None:
    body = page_of_tiny_records(2 * MEGABYTE)
    records = decode_page(body).records
    assert len(records) > 12_000
    peak = peak_bytes(lambda: decode_page(body))
    assert peak < memory_size(records) < 5 * len(body)
    assert peak_bytes(lambda: open_records(records, UPPER_HALF)) < MEGABYTE


def test_one_byte_records_remain_columns_in_spark() -> None:
    body = page_of_tiny_records(2 * MEGABYTE)
    columns = Columns(schema(*COLUMNS))

    def read(body: bytes) -> object:
        rows = rows_of(decode_page(body), deaggregate=True)
        return rows.batch(SHARD, columns, Slice(0, len(rows)))

    read(page_of_tiny_records(1_000))  # imports modules
    assert peak_bytes(lambda: read(body)) < 6 * len(body)


# --- frames ---


def test_a_forged_length_of_a_gigabyte_needs_no_memory() -> None:
    messages = [
        field(0x0A, b"k", GIGABYTE),
        field(0x0A, b"k") + user(0, b"x", GIGABYTE),
        field(0x0A, b"k") + field(0x1A, b"", GIGABYTE),
        field(0x12, b"1", GIGABYTE),
    ]
    records = [Record("1", frame(message)) for message in messages]
    open_records([Record("1", frame(b""))], UPPER_HALF)  # fills the caches
    assert peak_bytes(lambda: open_records(records, UPPER_HALF)) < MEGABYTE


def test_the_smallest_user_records_need_the_memory_that_the_buffer_counts() -> None:
    message = field(0x0A, b"k") + user(0, b"") * 40_000
    record = Record("1", frame(message))
    parts = open_records([record], UPPER_HALF).records
    assert len(parts) == 40_000
    peak = peak_bytes(lambda: open_records([record], UPPER_HALF))
    assert peak < memory_size(parts)
    assert peak < 40 * len(record.data)


def test_the_work_of_reading_records_that_only_begin_like_frames_is_linear() -> None:
    def work(size: int) -> Callable[[], object]:
        records = [Record(str(n), MAGIC + b"x" * 40) for n in range(size)]
        return lambda: open_records(records, UPPER_HALF)

    assert growth(work) < 5


# --- members ---


def member_row(number: int) -> Row:
    """Return the row of a client that died long ago."""
    return {
        "pk": f"member#{APP}",
        "sk": f"client-{number:06}",
        "session": f"session {number}",
        "incarnation": 0,
        "beat": 7,
        "lease_ms": 8000,
        "dead": True,
        "streams": frozenset({ARN}),
        "last_update": "2026-11-21T00:00:00.000Z",
    }


async def poll_dead_members(world: World, count: int) -> Leader:
    """Let a leader read a table with this many dead members once."""
    world.table.restore([member_row(n) for n in range(count)], "table-1")
    member = MemberRow("c1", "s1", streams=frozenset({ARN}))
    await world.table.write(writes.register(APP, member, None, "2026-11-21"))
    leader = Leader(
        world.context(), Lease("s1", 1e9), member, frozenset(), lambda event: None
    )
    gc.collect()
    tracemalloc.reset_peak()
    await leader.poll()
    return leader


async def test_ten_thousand_dead_members_are_read_by_one_query(world: World) -> None:
    leader = await poll_dead_members(world, 10_000)
    assert leader.is_leading
    assert [member.client_id for member in leader.watcher.members] == ["c1"]
    # The leader reads the rows in pages of 1 MB, and prunes only a few of them.
    assert world.table.usage.requests.total() < 10_000 // 100


async def test_dead_members_are_pruned_a_few_at_a_time(world: World) -> None:
    world.table.restore([member_row(n) for n in range(200)], "table-1")
    pruner, context = Pruner(), world.context()
    stored = world.table.rows(f"member#{APP}")
    pruner.observe(map(rows.read_liveness, stored), world.clock.now() - 1000)
    for turn in range(1, 9):
        before = world.table.usage.requests["get"]
        await pruner.prune(context)
        assert world.table.usage.requests["get"] == before + PRUNE_BATCH_ROWS
        assert len(world.table.rows(f"member#{APP}")) == 200 - turn * PRUNE_BATCH_ROWS


def test_the_work_of_planning_is_linear_in_the_members() -> None:
    starts = {ARN: [n * (HASH_KEYS // 64) for n in range(64)]}

    def work(size: int) -> Callable[[], object]:
        members = [
            MemberRow(f"c{n:06}", f"s{n}", streams=frozenset({ARN}))
            for n in range(size)
        ]
        watch = HeartbeatWatch()

        def poll() -> None:
            watch.observe(members, 0.0, 10.0)
            alive = plan.live_clients(members)
            planned = plan.make_plan(alive, starts, "range", frozenset({ARN}))
            plan.to_assign(planned, alive)
            plan.change(members, alive)
            plan.has_drifted(planned, starts, planned, alive)

        return poll

    assert growth(work) < 5


# --- shards ---


def listing(count: int) -> list[Shard]:
    """Return a stream of this many shards, all open."""
    step = HASH_KEYS // count
    bounds = [*(n * step for n in range(count)), HASH_KEYS]
    return [
        Shard(f"shardId-{n:012}", bounds[n], bounds[n + 1] - 1) for n in range(count)
    ]


def test_the_work_of_repairs_is_linear_in_the_listing() -> None:
    stream = StreamRow(ARN, 1.0, Start.TRIM_HORIZON)

    def work(size: int) -> Callable[[], object]:
        shards = listing(size)

        def repair() -> None:
            assert lineage.is_complete(shards)
            stored = lineage.first_rows(lineage.Origin(stream), shards)
            lineage.repairs(ARN, stored[: size // 2], shards)
            lineage.open_shard_starts(stored)

        return repair

    assert growth(work) < 5


def test_a_chain_of_reshards_of_any_length_is_followed() -> None:
    shards = [
        Shard(f"shardId-{n:012}", 0, HASH_KEYS - 1, (f"shardId-{n - 1:012}",))
        for n in range(5_000)
    ]
    assert lineage.is_complete(shards)
    newest = lineage.new_row(ARN, shards[-1])._replace(ready=True)
    assert lineage.repairs(ARN, [newest], shards).create == []


async def test_four_thousand_shards_get_their_rows_at_once(world: World) -> None:
    source = FaultySource(world.kinesis.source("orders"))
    source.listing = listing(4_000)
    context, stream = world.context(), world.open(source)
    await sync_shards(context, stream)
    stored = world.table.rows(rows.shard_partition(APP, ARN))
    assert len(stored) == 4_000
    sent = world.table.usage.requests["write"]
    assert sent < 4_010
    for _ in range(3):
        await sync_shards(context, stream)
    assert world.table.usage.requests["write"] == sent
    put(world, stored[0] | {"epoch": "?"})
    await sync_shards(context, stream)
    assert world.table.usage.requests["write"] <= sent + 1


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
