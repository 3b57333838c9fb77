"""Test that memory and work grow in proportion to the size of the input."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

from kinesumer.coordination.leader import Leader
from kinesumer.coordination.membership import PRUNE_BATCH_ROWS, Pruner
from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.core import lineage, plan
from kinesumer.core.liveness import HeartbeatWatch, Lease
from kinesumer.model.records import Record, memory_size
from kinesumer.model.rows import MemberRow, Row, StreamRow
from kinesumer.model.streams import HASH_KEYS, Shard, Start
from kinesumer.spark.options.table import COLUMNS
from kinesumer.spark.reading.rows import Columns, Slice, parse
from kinesumer.wire import rows, writes
from kinesumer.wire.aggregation import MAGIC, open_records
from kinesumer.wire.records import decode_page
from tests.support.aggregates import frame
from tests.support.faulty import FaultySource
from tests.support.row_edits import put
from tests.support.spark_reading import schema
from tests.support.steps import growth, peak_bytes
from tests.support.world import APP, ARN, World, in_virtual_time
from tests.system.hostile.strategies import SHARD, UPPER_HALF, field, user

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
        _, rows = parse(body, deaggregate=True)
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


def test_the_work_of_opening_a_frame_is_linear() -> None:
    def work(size: int) -> Callable[[], object]:
        keys = b"".join(field(0x0A, b"key %d" % n) for n in range(size))
        message = keys + b"".join(user(n % 128, b"x") for n in range(size))
        record = Record("1", frame(message))
        return lambda: open_records([record], UPPER_HALF)

    assert growth(work) < 5
    assert growth(lambda size: lambda: open_records(many(size), UPPER_HALF)) < 5


def many(size: int) -> list[Record]:
    """Return records that all begin like a frame but aren't valid frames."""
    return [Record(str(n), MAGIC + b"x" * 40) for n in range(size)]


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


@in_virtual_time
async def test_ten_thousand_dead_members_are_read_by_one_query(world: World) -> None:
    leader = await poll_dead_members(world, 10_000)
    assert leader.is_leading
    assert [member.client_id for member in leader.watcher.members] == ["c1"]
    # The leader reads the rows in pages of 1 MB, and prunes only a few of them.
    assert world.table.usage.requests.total() < 10_000 // 100


@in_virtual_time
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
    newest = lineage.child_row(ARN, shards[-1])._replace(ready=True)
    assert lineage.repairs(ARN, [newest], shards).create == []


@in_virtual_time
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
