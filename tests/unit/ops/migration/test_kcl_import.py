"""Test that a group in memory takes over the leases that a real KCL 3.5.1 wrote."""

from __future__ import annotations

import pytest

from kinesumer.errors import ConfigurationError, GroupBusyError, InvalidPositionError
from kinesumer.model.positions import Position
from kinesumer.model.rows import MemberRow, ShardRow
from kinesumer.model.streams import Start
from kinesumer.ops.migration.import_plan import ImportPlan
from kinesumer.ops.migration.positions import plan_kcl_import
from kinesumer.testing.memory import MemorySource
from kinesumer.wire import rows, shard_writes, writes
from tests.support.kcl_fleet import (
    AGGREGATE,
    ORDERS,
    PAYMENTS,
    PLAIN,
    S0,
    S1,
    S2,
    S3,
    MemoryLeases,
    World,
    leases,
)


@pytest.fixture
def world() -> World:
    return World()


async def importing(
    world: World,
    table: MemoryLeases | None = None,
    *streams: str,
    start_at: float | None = None,
) -> ImportPlan:
    """Plan an import, by default from the lease table of stream "orders"."""
    if table is None:
        table, streams = leases("kclsingle"), ("orders",)
    return await plan_kcl_import(
        world.context(),
        world.open,
        table,
        streams,
        region="us-east-1",
        start_at=start_at,
    )


def stored(world: World, arn: str = ORDERS, app: str = "a") -> dict[str, ShardRow]:
    found = map(rows.read_shard, world.store.rows(rows.shard_partition(app, arn)))
    return {row.key.shard_id: row for row in found}


async def test_leases_of_one_stream_become_rows(world: World) -> None:
    plan = await importing(world)
    assert not plan.problems
    assert not stored(world)
    await plan.write(world.context())
    found = stored(world)
    assert found[S0].position == Position(AGGREGATE, 2)
    assert found[S1].position == Position(PLAIN)
    assert found[S0].ready and found[S1].ready
    # The shard has split, so its children are read after it, from their beginning.
    assert not (found[S2].ready or found[S3].ready)
    assert found[S2].start == Start.TRIM_HORIZON
    stream = rows.read_stream(world.store.rows("group#a")[-1])
    assert (stream.arn, stream.baseline) == (ORDERS, True)


async def test_leases_of_many_streams_become_rows_of_each(world: World) -> None:
    plan = await importing(world, leases("kclmulti2"))
    await plan.write(world.context())
    found = stored(world)
    assert found[S1].ended
    assert found[S0].position == Position(AGGREGATE, 1)
    assert all(found[child].ready for child in (S2, S3))
    assert all(found[child].position is None for child in (S2, S3))
    assert len(stored(world, PAYMENTS)) == 2
    assert not plan.problems
    assert not any(stream_plan.notes for stream_plan in plan.plans)


@pytest.mark.parametrize(
    ("version", "stream"),
    [("kcl-1.15.1", "one"), ("kcl-2.6.0", "two"), ("kcl-3.5.1", "three")],
)
async def test_leases_of_each_version_say_the_same(
    world: World, version: str, stream: str
) -> None:
    plan = await importing(world, leases(version), stream)
    await plan.write(world.context())
    arn = ORDERS.replace("orders", stream)
    found = stored(world, arn)
    log = world.kinesis.stream(stream).shards[S0].log
    [aggregate] = [r.sequence_number for r in log if r.data.startswith(b"\xf3")]
    assert found[S0].position == Position(aggregate, 1)
    plain = world.kinesis.stream(stream).shards[S1].log[-2].sequence_number
    assert found[S1].position == Position(plain)
    [note] = plan.plans[0].notes
    assert note.startswith("2 leases have a pending checkpoint")


async def test_a_second_import_changes_nothing(world: World) -> None:
    for _ in range(2):
        plan = await importing(world, leases("kclmulti2"))
        await plan.write(world.context())
    assert plan.is_done
    assert {row.epoch for row in stored(world).values()} == {0}


async def test_positions_that_clients_have_moved_since_are_not_overwritten(
    world: World,
) -> None:
    first = await importing(world)
    await first.write(world.context())
    row = stored(world)[S0]
    member = MemberRow("c1", "mine")
    await world.store.write(shard_writes.claim("a", row, member, "nonce"))
    owned = row._replace(owner="mine", epoch=1)
    await world.store.write(shard_writes.release("a", owned, Position(AGGREGATE)))
    again = await importing(world)
    assert "has positions of its own" in again.problems[0]


async def test_an_import_that_ended_half_way_is_finished_by_the_next(
    world: World,
) -> None:
    plan = await importing(world)
    [stream_plan] = plan.plans
    await world.store.write(writes.create_stream("a", stream_plan.stream))
    wrong = stream_plan.changes[0].row._replace(position=Position("1"))
    await world.store.write(shard_writes.create_shard("a", wrong))
    again = await importing(world)
    await again.write(world.context())
    assert stored(world)[S0].position == Position(AGGREGATE, 2)


@pytest.mark.parametrize(
    ("row", "name", "value"),
    [(S1, "leaseCounter", "99"), ("worker-1", "lut", "1795265031")],
)
async def test_a_fleet_that_changes_any_row_is_alive(
    world: World, row: str, name: str, value: str
) -> None:
    table = leases("kclsingle")
    change = {name: {"N": value}}
    table.before_scan = [lambda: None, lambda: table.rows[row].update(change)]
    with pytest.raises(GroupBusyError, match=f"1 rows of 4 .* {row} among them"):
        await importing(world, table, "orders")


async def test_a_fleet_that_comes_back_before_the_write_is_reported(
    world: World,
) -> None:
    table = leases("kclsingle")
    plan = await importing(world, table, "orders")
    table.beat(S0)
    with pytest.raises(GroupBusyError, match="have changed meanwhile"):
        await plan.write(world.context())
    assert not stored(world)


async def test_clients_of_the_app_must_be_stopped_and_the_dead_do_not_count(
    world: World,
) -> None:
    plan = await importing(world)
    streams = frozenset({ORDERS})
    member = MemberRow("c1", "mine", lease_ms=100, streams=streams)
    await world.store.write(writes.register("a", member, None, "2026"))
    reads = 0
    query = world.store.query

    async def beating(pk: str, **options: object) -> object:
        nonlocal reads
        if pk.startswith("member#"):
            reads += 1
            beat = writes.heartbeat("a", member, reads, state="up", lease_ms=100)
            await world.store.write(beat)
        return await query(pk, **options)  # type: ignore[arg-type]

    world.store.query = beating  # type: ignore[method-assign, assignment]
    with pytest.raises(GroupBusyError, match="clients of app 'a' are alive: c1"):
        await plan.write(world.context())
    world.store.query = query  # type: ignore[method-assign]
    await plan.write(world.context())
    assert len(stored(world)) == 4


async def test_java_stores_no_time_so_it_must_be_said(world: World) -> None:
    zero = {"checkpointSubSequenceNumber": {"N": "0"}}
    changed = {"checkpoint": {"S": "AT_TIMESTAMP"}, **zero}
    table = leases("kclsingle", **{f"_{S0}": changed})
    plan = await importing(world, table, "orders")
    assert "stores no time" in plan.problems[0]
    again = await importing(world, table, "orders", start_at=1795265000.0)
    assert not again.problems
    await again.write(world.context())
    at = Start(type="AT_TIMESTAMP", timestamp=1795265000.0)
    assert stored(world)[S0].start == at


async def test_latest_becomes_the_time_of_the_import(world: World) -> None:
    plan = await importing(world, leases("kcllatest"), "quiet")
    await plan.write(world.context())
    now = Start(type="AT_TIMESTAMP", timestamp=world.clock.wall())
    arn = ORDERS.replace("orders", "quiet")
    assert {row.start for row in stored(world, arn).values()} == {now}
    assert "never checkpointed since LATEST" in plan.plans[0].notes[0]


async def test_pending_checkpoints_and_other_epochs_are_noted(world: World) -> None:
    pending = {"pendingCheckpoint": {"S": AGGREGATE}}
    table = leases("kclmulti", **{f"_orders:1:{S0}": pending})
    plan = await importing(world, table, "orders")
    [stream_plan] = plan.plans
    assert stream_plan.stream.arn == ORDERS
    assert [note.split(":")[0] for note in stream_plan.notes] == [
        "leases call it 000000000000",
        "1 leases have a pending checkpoint",
    ]


async def test_a_position_of_another_stream_is_a_problem(world: World) -> None:

    class Foreign(MemorySource):
        async def get_iterator(self, shard_id: str, after: object) -> str:
            raise InvalidPositionError("no")

    async def open_(name: str) -> MemorySource:
        return Foreign(world.kinesis, name)

    plan = await plan_kcl_import(
        world.context(), open_, leases("kclsingle"), ["orders"]
    )
    assert [p.split(":")[6].strip() for p in plan.problems] == [S0, S1]


async def test_a_position_that_retention_has_passed_is_noted(world: World) -> None:
    world.kinesis.stream("orders").shards[S0].trimmed = 12
    plan = await importing(world)
    assert not plan.problems
    [note] = plan.plans[0].notes
    assert note.startswith(f"{S0}: retention has passed its position")


async def test_a_shard_without_a_lease_is_a_problem(world: World) -> None:
    table = leases("kclsingle")
    del table.rows[S0]
    plan = await importing(world, table, "orders")
    [problem] = plan.problems
    assert f"{S0}: nothing tells how far it was read" in problem


@pytest.mark.parametrize(
    ("table", "streams", "text"),
    [
        ("kclsingle", [], "don't contain its name"),
        ("kclsingle", ["orders", "payments"], "don't contain its name"),
        (
            "kclmulti2",
            ["clicks"],
            "no leases of stream clicks; name by --stream one of 000000000000:",
        ),
    ],
)
async def test_streams_must_be_those_of_the_table(
    world: World, table: str, streams: list[str], text: str
) -> None:
    with pytest.raises(ConfigurationError, match=text):
        await importing(world, leases(table), *streams)


async def test_two_sets_of_leases_of_one_stream_need_a_choice(world: World) -> None:
    table = leases("kclmulti2")
    for key, row in leases("kclmulti").rows.items():
        table.rows[key] = row
    with pytest.raises(ConfigurationError, match="name by --stream the one"):
        await importing(world, table)
    orders = "000000000000:orders:1795264904"
    plan = await importing(world, table, orders)
    assert [stream_plan.stream.arn for stream_plan in plan.plans] == [ORDERS]


async def test_leases_of_one_and_of_many_streams_do_not_mix(world: World) -> None:
    table = leases("kclmulti2")
    table.rows[S0] = leases("kclsingle").rows[S0]
    with pytest.raises(ConfigurationError, match="leases of one stream and"):
        await importing(world, table, "orders")
