"""The leases that a real KCL 3.5.1 wrote, taken over by a group in memory."""

from __future__ import annotations

import pytest

from kinesumer.errors import (
    ConfigurationError,
    GroupBusyError,
    InvalidPositionError,
    KinesumerError,
    StoreUnavailableError,
)
from kinesumer.migration.kcl_import import LeaseImport
from kinesumer.model.positions import Position
from kinesumer.model.rows import MemberRow, ShardRow
from kinesumer.model.streams import Start
from kinesumer.testing.memory import MemorySource
from kinesumer.wire import rows, writes
from tests.unit.migration.fleet import (
    ORDERS,
    PAYMENTS,
    S0,
    S1,
    S2,
    S3,
    MemoryLeases,
    World,
    leases,
)

AGGREGATE = "49017952649043560000000000000000000000000000002300000000"
PLAIN = "49017952649043560000000000000000000000000000002200000001"


def importing(table: MemoryLeases, *streams: str, **options: float) -> LeaseImport:
    return LeaseImport(table, streams, "us-east-1", **options)


def stored(world: World, arn: str = ORDERS, app: str = "a") -> dict[str, ShardRow]:
    found = map(rows.read_shard, world.store.rows(rows.shard_partition(app, arn)))
    return {row.key.shard_id: row for row in found}


async def test_leases_of_one_stream_become_rows() -> None:
    world, context = World(), World().context()
    context = world.context()
    takeover = await importing(leases("kclsingle"), "orders").draft(context, world.open)
    assert not takeover.problems
    assert not stored(world)
    await takeover.write(context)
    found = stored(world)
    assert found[S0].position == Position(AGGREGATE, 2)
    assert found[S1].position == Position(PLAIN)
    assert found[S0].ready and found[S1].ready
    # Split since: the children are read after it, from their beginning.
    assert not (found[S2].ready or found[S3].ready)
    assert found[S2].start == Start.TRIM_HORIZON
    stream = rows.read_stream(world.store.rows("group#a")[-1])
    assert (stream.arn, stream.baseline) == (ORDERS, True)


async def test_leases_of_many_streams_become_rows_of_each() -> None:
    world = World()
    context = world.context()
    takeover = await importing(leases("kclmulti2")).draft(context, world.open)
    await takeover.write(context)
    found = stored(world)
    assert found[S1].ended
    assert found[S0].position == Position(AGGREGATE, 1)
    assert all(found[child].ready for child in (S2, S3))
    assert all(found[child].position is None for child in (S2, S3))
    assert len(stored(world, PAYMENTS)) == 2
    assert not takeover.problems
    assert not any(draft.notes for draft in takeover.plans)


@pytest.mark.parametrize(
    ("version", "stream"),
    [("kcl-1.15.1", "one"), ("kcl-2.6.0", "two"), ("kcl-3.5.1", "three")],
)
async def test_leases_of_each_version_say_the_same(version: str, stream: str) -> None:
    world = World()
    context = world.context()
    takeover = await importing(leases(version), stream).draft(context, world.open)
    await takeover.write(context)
    arn = ORDERS.replace("orders", stream)
    found = stored(world, arn)
    log = world.kinesis.stream(stream).shards[S0].log
    [aggregate] = [r.sequence_number for r in log if r.data.startswith(b"\xf3")]
    assert found[S0].position == Position(aggregate, 1)
    plain = world.kinesis.stream(stream).shards[S1].log[-2].sequence_number
    assert found[S1].position == Position(plain)
    [note] = takeover.plans[0].notes
    assert note.startswith("2 leases have a pending checkpoint")


async def test_a_second_import_changes_nothing() -> None:
    world = World()
    context = world.context()
    for _ in range(2):
        takeover = await importing(leases("kclmulti2")).draft(context, world.open)
        await takeover.write(context)
    assert takeover.is_done
    assert {row.epoch for row in stored(world).values()} == {0}


async def test_positions_that_clients_have_moved_since_are_not_overwritten() -> None:
    world = World()
    context = world.context()
    first = await importing(leases("kclsingle"), "orders").draft(context, world.open)
    await first.write(context)
    row = stored(world)[S0]
    member = MemberRow("c1", "mine")
    await world.store.write(writes.claim("a", row, member, "nonce"))
    owned = row._replace(owner="mine", epoch=1)
    await world.store.write(writes.release("a", owned, Position(AGGREGATE)))
    again = await importing(leases("kclsingle"), "orders").draft(context, world.open)
    assert "has positions of its own" in again.problems[0]


async def test_an_import_that_ended_half_way_is_finished_by_the_next() -> None:
    world = World()
    context = world.context()
    takeover = await importing(leases("kclsingle"), "orders").draft(context, world.open)
    [draft] = takeover.plans
    await world.store.write(writes.create_stream("a", draft.stream_changes.stream))
    wrong = draft.stream_changes.changes[0].row._replace(position=Position("1"))
    await world.store.write(writes.create_shard("a", wrong))
    again = await importing(leases("kclsingle"), "orders").draft(context, world.open)
    await again.write(context)
    assert stored(world)[S0].position == Position(AGGREGATE, 2)


async def test_what_stops_it_half_way_is_told_with_what_is_left_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailableError("timed out")

    world = World()
    context = world.context()
    takeover = await importing(leases("kclsingle"), "orders").draft(context, world.open)
    monkeypatch.setattr("kinesumer.migration.takeover.write", fail)
    with pytest.raises(KinesumerError, match=r"timed out; not all is .* run it again"):
        await takeover.write(context)


async def test_a_fleet_whose_counters_move_is_refused() -> None:
    world, table = World(), leases("kclsingle")
    table.before_scan = [lambda: None, lambda: table.beat(S1)]
    with pytest.raises(GroupBusyError, match=f"1 rows of 4 .* {S1} among them"):
        await importing(table, "orders").draft(world.context(), world.open)


async def test_a_worker_that_only_tells_its_metrics_is_alive_too() -> None:
    world, table = World(), leases("kclsingle")
    beat = {"lut": {"N": "1795265031"}}
    table.before_scan = [lambda: None, lambda: table.rows["worker-1"].update(beat)]
    with pytest.raises(GroupBusyError, match="worker-1 among them"):
        await importing(table, "orders").draft(world.context(), world.open)


async def test_a_fleet_that_comes_back_meanwhile_is_told_of() -> None:
    world, table = World(), leases("kclsingle")
    context = world.context()
    takeover = await importing(table, "orders").draft(context, world.open)
    table.beat(S0)
    with pytest.raises(GroupBusyError, match="have changed meanwhile"):
        await takeover.write(context)
    assert not stored(world)


async def test_clients_of_the_app_must_be_stopped_and_the_dead_do_not_count() -> None:
    world = World()
    context = world.context()
    takeover = await importing(leases("kclsingle"), "orders").draft(context, world.open)
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
        await takeover.write(context)
    world.store.query = query  # type: ignore[method-assign]
    await takeover.write(context)
    assert len(stored(world)) == 4


async def test_java_stores_no_time_so_it_must_be_said() -> None:
    zero = {"checkpointSubSequenceNumber": {"N": "0"}}
    changed = {"checkpoint": {"S": "AT_TIMESTAMP"}, **zero}
    world = World()
    table = leases("kclsingle", **{f"_{S0}": changed})
    takeover = await importing(table, "orders").draft(world.context(), world.open)
    assert "stores no time" in takeover.problems[0]
    told = importing(table, "orders", start_at=1795265000.0)
    again = await told.draft(world.context(), world.open)
    assert not again.problems
    await again.write(world.context())
    at = Start(type="AT_TIMESTAMP", timestamp=1795265000.0)
    assert stored(world)[S0].start == at


async def test_latest_becomes_the_time_of_the_import() -> None:
    world = World()
    takeover = await importing(leases("kcllatest"), "quiet").draft(
        world.context(), world.open
    )
    await takeover.write(world.context())
    now = Start(type="AT_TIMESTAMP", timestamp=world.clock.wall())
    arn = ORDERS.replace("orders", "quiet")
    assert {row.start for row in stored(world, arn).values()} == {now}
    assert "never checkpointed since LATEST" in takeover.plans[0].notes[0]


async def test_pending_checkpoints_and_other_epochs_are_noted() -> None:
    pending = {"pendingCheckpoint": {"S": AGGREGATE}}
    world = World()
    table = leases("kclmulti", **{f"_orders:1:{S0}": pending})
    takeover = await importing(table, "orders").draft(world.context(), world.open)
    [draft] = takeover.plans
    assert draft.stream_changes.stream.arn == ORDERS
    assert [note.split(":")[0] for note in draft.notes] == [
        "leases call it 000000000000",
        "1 leases have a pending checkpoint",
    ]


async def test_a_position_of_another_stream_is_a_problem() -> None:
    world = World()

    class Foreign(MemorySource):
        async def get_iterator(self, shard_id: str, after: object) -> str:
            raise InvalidPositionError("no")

    async def open_(name: str) -> MemorySource:
        return Foreign(world.kinesis, name)

    takeover = await importing(leases("kclsingle"), "orders").draft(
        world.context(), open_
    )
    assert [p.split(":")[6].strip() for p in takeover.problems] == [S0, S1]


async def test_a_position_that_retention_has_passed_is_noted() -> None:
    world = World()
    world.kinesis.stream("orders").shards[S0].trimmed = 12
    takeover = await importing(leases("kclsingle"), "orders").draft(
        world.context(), world.open
    )
    assert not takeover.problems
    [note] = takeover.plans[0].notes
    assert note.startswith(f"{S0}: retention has passed its position")


async def test_a_shard_that_no_lease_tells_of_is_a_problem() -> None:
    world, table = World(), leases("kclsingle")
    del table.rows[S0]
    takeover = await importing(table, "orders").draft(world.context(), world.open)
    [problem] = takeover.problems
    assert f"{S0}: nothing tells how far it was read" in problem


async def test_a_listing_in_the_middle_of_a_reshard_is_not_used() -> None:
    world = World()
    del world.kinesis.stream("orders").shards[S3]
    with pytest.raises(KinesumerError, match="listing has holes"):
        await importing(leases("kclsingle"), "orders").draft(
            world.context(), world.open
        )


@pytest.mark.parametrize(
    ("table", "streams", "text"),
    [
        ("kclsingle", [], "whose name isn't in it"),
        ("kclsingle", ["orders", "payments"], "whose name isn't in it"),
        ("kclmulti2", ["clicks"], "no leases of clicks; it has 000000000000:orders:"),
    ],
)
async def test_streams_must_be_those_of_the_table(
    table: str, streams: list[str], text: str
) -> None:
    world = World()
    with pytest.raises(ConfigurationError, match=text):
        await importing(leases(table), *streams).draft(world.context(), world.open)


async def test_two_sets_of_leases_of_one_stream_need_a_choice() -> None:
    world, table = World(), leases("kclmulti2")
    for key, row in leases("kclmulti").rows.items():
        table.rows[key] = row
    with pytest.raises(ConfigurationError, match="say with --stream which"):
        await importing(table).draft(world.context(), world.open)
    orders = "000000000000:orders:1795264904"
    takeover = await importing(table, orders).draft(world.context(), world.open)
    assert [draft.stream_changes.stream.arn for draft in takeover.plans] == [ORDERS]


async def test_leases_of_one_and_of_many_streams_do_not_mix() -> None:
    world, table = World(), leases("kclmulti2")
    table.rows[S0] = leases("kclsingle").rows[S0]
    with pytest.raises(ConfigurationError, match="leases of one stream and"):
        await importing(table, "orders").draft(world.context(), world.open)
