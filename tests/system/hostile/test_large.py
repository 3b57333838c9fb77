"""What is large costs memory and work in proportion, and no more."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from kinesumer.consuming.prefetch import memory_size
from kinesumer.coordination.leader import Leader
from kinesumer.coordination.membership import PRUNE_BATCH_ROWS, Pruner
from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.core import lineage, plan
from kinesumer.core.liveness import HeartbeatWatch, Lease
from kinesumer.model.records import Record
from kinesumer.model.rows import MemberRow, StreamRow
from kinesumer.model.streams import HASH_KEYS, Shard, Start
from kinesumer.spark.columnar.arrow import Columns
from kinesumer.spark.columnar.rows import Slice, parse
from kinesumer.spark.options.table import COLUMNS
from kinesumer.wire import rows, writes
from kinesumer.wire.aggregation import MAGIC, open_records
from kinesumer.wire.records import decode_page
from tests.support.world import APP, ARN, FaultySource, World, in_virtual_time
from tests.system.hostile.hands import put
from tests.system.hostile.steps import growth
from tests.system.hostile.test_frames import GIGABYTE, SHARD, UPPER, field, user
from tests.system.spark.reading_bench import schema
from tests.unit.wire.aggregates import frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.model.rows import Row

MEGABYTE = 1 << 20


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the most memory that a call took at one time, its result included."""
    gc.collect()
    tracemalloc.start()
    try:
        result = work()
        peak = tracemalloc.get_traced_memory()[1]
        del result
    finally:
        tracemalloc.stop()
    return peak


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


def test_ten_megabytes_of_one_byte_records_take_what_the_buffer_reckons() -> None:
    body = page_of_tiny_records(10 * MEGABYTE)
    records = decode_page(body).records
    assert len(records) > 60_000
    peak = peak_bytes(lambda: decode_page(body))
    assert peak < memory_size(records) < 5 * len(body)
    assert peak_bytes(lambda: open_records(records, UPPER)) < MEGABYTE


def test_ten_megabytes_of_one_byte_records_stay_columns_in_spark() -> None:
    body = page_of_tiny_records(10 * MEGABYTE)
    columns = Columns(schema(*COLUMNS))

    def read() -> object:
        _, found = parse(body, columns.names, deaggregate=True)
        return found.batch(SHARD, columns, Slice(0, len(found)))

    assert peak_bytes(read) < 6 * len(body)


# --- frames ---


@pytest.mark.parametrize(
    "message",
    [
        field(0x0A, b"k", GIGABYTE),
        field(0x0A, b"k") + user(0, b"x", GIGABYTE),
        field(0x0A, b"k") + field(0x1A, b"", GIGABYTE),
        field(0x12, b"1", GIGABYTE),
    ],
)
def test_a_frame_that_claims_a_gigabyte_takes_no_memory_for_it(message: bytes) -> None:
    record = Record("1", frame(message))
    open_records([Record("1", frame(b""))], UPPER)  # its tables are made once
    assert peak_bytes(lambda: open_records([record], UPPER)) < MEGABYTE


def test_a_megabyte_of_the_smallest_parts_takes_what_the_buffer_reckons() -> None:
    message = field(0x0A, b"k") + user(0, b"") * (MEGABYTE // len(user(0, b"")))
    record = Record("1", frame(message))
    parts = open_records([record], UPPER).records
    assert len(parts) > 170_000
    peak = peak_bytes(lambda: open_records([record], UPPER))
    assert peak < memory_size(parts)
    assert peak < 40 * len(record.data)


def test_opening_a_frame_grows_with_it_and_not_with_its_square() -> None:
    def work(size: int) -> Callable[[], object]:
        keys = b"".join(field(0x0A, b"key %d" % n) for n in range(size))
        message = keys + b"".join(user(n % 128, b"x") for n in range(size))
        record = Record("1", frame(message))
        return lambda: open_records([record], UPPER)

    assert growth(work) < 5
    assert growth(lambda size: lambda: open_records(many(size), UPPER)) < 5


def many(size: int) -> list[Record]:
    """Return records that all begin like a frame and aren't one."""
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


async def look_at(world: World, count: int) -> Leader:
    """Have a leader look once at a table of so many dead members."""
    world.table.restore([member_row(n) for n in range(count)], "table-1")
    member = MemberRow("c1", "s1", streams=frozenset({ARN}))
    await world.table.write(writes.register(APP, member, None, "2026-11-21"))
    leader = Leader(
        world.context(),
        Lease("s1", 1e9),
        member,
        frozenset(),
        lambda event: None,
    )
    gc.collect()
    tracemalloc.reset_peak()
    await leader.poll()
    return leader


@in_virtual_time
async def test_a_hundred_thousand_dead_members_are_seen_in_one_query(
    world: World,
) -> None:
    leader = await look_at(world, 100_000)
    assert leader.is_leading
    assert [member.client_id for member in leader.watcher.members] == ["c1"]
    # As many pages of a megabyte as the rows fill, and a few rows to be pruned.
    assert world.table.usage.requests.total() < 100_000 // 100


@in_virtual_time
async def test_a_look_takes_little_memory_for_a_dead_member(world: World) -> None:
    tracemalloc.start()
    try:
        await look_at(world, 1_000)
        few = tracemalloc.get_traced_memory()[1]
        await look_at(world, 5_000)
        many = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The table's own rows, which are in memory here, are among them.
    assert many - few < 4_000 * 4_000


@in_virtual_time
async def test_the_long_dead_are_pruned_a_few_at_a_time(world: World) -> None:
    world.table.restore([member_row(n) for n in range(200)], "table-1")
    pruner, context = Pruner(), world.context()
    found = world.table.rows(f"member#{APP}")
    pruner.observe(map(rows.read_liveness, found), world.clock.now() - 1000)
    for turn in range(1, 9):
        before = world.table.usage.requests["get"]
        await pruner.prune(context)
        assert world.table.usage.requests["get"] == before + PRUNE_BATCH_ROWS
        assert len(world.table.rows(f"member#{APP}")) == 200 - turn * PRUNE_BATCH_ROWS


def test_planning_grows_with_the_members_and_not_with_their_square() -> None:
    places = {ARN: [n * (HASH_KEYS // 64) for n in range(64)]}

    def work(size: int) -> Callable[[], object]:
        members = [
            MemberRow(f"c{n:06}", f"s{n}", streams=frozenset({ARN}))
            for n in range(size)
        ]
        watch = HeartbeatWatch()

        def look() -> None:
            watch.observe(members, 0.0, 10.0)
            alive = plan.live_clients(members)
            made = plan.make_plan(alive, places, "range", frozenset({ARN}))
            plan.to_assign(made, alive)
            plan.change(members, alive)
            plan.has_drifted(made, places, made, alive)

        return look

    assert growth(work) < 5


# --- shards ---


def listing(count: int) -> list[Shard]:
    """Return a stream of this many shards, all open."""
    step = HASH_KEYS // count
    bounds = [*(n * step for n in range(count)), HASH_KEYS]
    return [
        Shard(f"shardId-{n:012}", bounds[n], bounds[n + 1] - 1) for n in range(count)
    ]


def test_repairs_grow_with_the_listing_and_not_with_its_square() -> None:
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
        for n in range(20_000)
    ]
    assert lineage.is_complete(shards)
    newest = lineage.child_row(ARN, shards[-1])._replace(ready=True)
    assert lineage.repairs(ARN, [newest], shards).create == []


@in_virtual_time
async def test_twenty_thousand_shards_get_their_rows_in_one_go(world: World) -> None:
    source = FaultySource(world.kinesis.source("orders"))
    source.listing = listing(20_000)
    context, stream = world.context(), world.open(source)
    await sync_shards(context, stream)
    stored = world.table.rows(rows.shard_partition(APP, ARN))
    assert len(stored) == 20_000
    sent = world.table.usage.requests["write"]
    assert sent < 20_010
    for _ in range(3):
        await sync_shards(context, stream)
    assert world.table.usage.requests["write"] == sent
    put(world, stored[0] | {"epoch": "?"})
    await sync_shards(context, stream)
    assert world.table.usage.requests["write"] <= sent + 1
