"""Test the rows that result from seeks, concurrent changes, and rejected seeks."""

from __future__ import annotations

import pytest

from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.core import lineage
from kinesumer.errors import (
    ConfigurationError,
    StreamRecreatedError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.rows import ShardRow, StreamRow
from kinesumer.model.streams import Start
from kinesumer.ops.group import seek
from kinesumer.wire import rows, shard_writes, writes
from tests.support.faulty import DateAhead, FaultyStore
from tests.support.operator import HIGH, LOW, MERGED, BeforeSeek, Operator, P, resharded
from tests.support.row_edits import spoil
from tests.support.world import APP, ARN, World


async def plan(
    operator: Operator, to: Start = Start.TRIM_HORIZON, shard_id: str | None = None
) -> seek.SeekPlan:
    return await seek.plan_seek(operator.context, operator.stream, to, shard_id)


def ready(operator: Operator) -> set[str]:
    """Return the ids of the shards that are ready."""
    return {shard_id for shard_id, row in operator.rows.items() if row.ready}


async def created(world: World, store: FaultyStore | None = None) -> Operator:
    operator = Operator(world, store)
    await operator.create_group()
    return operator


# --- seeks of a stream ---


async def test_a_seek_back_reads_ended_shards_again_parents_first(world: World) -> None:
    operator = await resharded(world)
    before = operator.rows
    written: list[str] = []
    world.table.on_write.append(lambda w, _old, _new: written.append(w.key.sk[33:]))
    seeked = await operator.seek(Start.TRIM_HORIZON)
    assert written[0] == P
    assert set(written[1:3]) == {LOW, HIGH}
    assert written[3:] == [MERGED]
    assert {row.key.shard_id: row for row in seeked} == operator.rows
    for shard_id, row in operator.rows.items():
        assert row.epoch == before[shard_id].epoch + 1
        assert (row.start, row.position) == (Start.TRIM_HORIZON, None)
        assert (row.ended, row.claim, row.ready) == (False, "", shard_id == P)
    # A seek keeps the owner: it may still deliver records, and then releases the shard.
    assert operator.rows[MERGED].owner == "s-c1"


async def test_a_seek_to_latest_leaves_ended_shards(world: World) -> None:
    operator = await resharded(world)
    before = operator.rows
    [seeked] = await operator.seek(Start.LATEST)
    after = operator.rows
    assert seeked.key.shard_id == MERGED
    now = world.kinesis.source("orders").describe_now().now
    assert seeked.start == Start(type="AT_TIMESTAMP", timestamp=now)
    assert (seeked.ready, seeked.ended, seeked.epoch) == (True, False, 5)
    for shard_id in (P, LOW, HIGH):
        assert after[shard_id] == before[shard_id]


async def test_a_seek_to_latest_goes_to_a_time_that_kinesis_has_reached(
    world: World,
) -> None:
    operator = await resharded(world)
    operator.stream.source = DateAhead(world.kinesis.source("orders"), 5.0)
    [seeked] = await operator.seek(Start.LATEST)
    assert seeked.start.timestamp is not None
    assert seeked.start.timestamp <= world.clock.wall()


async def test_shards_without_a_row_get_the_position_too(world: World) -> None:
    operator = await created(world)
    world.kinesis.split("orders", P)
    await operator.seek(Start.LATEST)
    assert len({row.start for row in operator.rows.values()}) == 1
    assert (set(operator.rows), ready(operator)) == ({P, LOW, HIGH}, {P})


async def test_unlisted_shards_are_unchanged(world: World) -> None:
    operator = await resharded(world)
    before = operator.rows
    del world.kinesis.stream("orders").shards[P]
    await operator.seek(Start.TRIM_HORIZON)
    assert operator.rows[P] == before[P]
    assert ready(operator) == {P, LOW, HIGH}


async def test_a_row_that_changes_meanwhile_is_seeked_as_it_is_then(
    world: World,
) -> None:
    operator = await resharded(world)
    planned = await plan(operator)
    await operator.change(MERGED, epoch=8, owner="s-c2", owner_id="c2", ended=True)
    await seek.seek(operator.context, planned)
    row = operator.rows[MERGED]
    assert (row.epoch, row.owner, row.ended, row.position) == (9, "s-c2", False, None)


@pytest.mark.parametrize(
    ("to", "shard_id"), [(Start.LATEST, None), (Start.TRIM_HORIZON, MERGED)]
)
async def test_a_shard_that_ends_before_it_is_seeked_remains_ended(
    world: World, to: Start, shard_id: str | None
) -> None:
    operator = await resharded(world)
    planned = await plan(operator, to, shard_id)
    await operator.change(MERGED, epoch=8, ended=True)
    assert await seek.seek(operator.context, planned) == []
    assert operator.rows[MERGED].ended


async def seek_and_find_conflicts(operator: Operator, to: Start) -> list[ShardRow]:
    """Seek, and return the shards that a concurrent seek moved."""
    planned = await plan(operator, to)
    seeked = await seek.seek(operator.context, planned)
    return await seek.conflicting_seeks(operator.context, [planned], seeked)


async def test_the_last_of_two_seeks_reports_shards_of_the_other(world: World) -> None:
    operator, other = await resharded(world), Operator(world)
    conflicts: list[list[ShardRow]] = []

    async def seek() -> None:
        conflicts.append(await seek_and_find_conflicts(other, time))

    # The second seek begins when the first one has moved all shards but the last.
    time = Start(type="AT_TIMESTAMP", timestamp=world.clock.wall() - 5)
    operator.context = world.context("operator", store=BeforeSeek(world, MERGED, seek))
    moved = await seek_and_find_conflicts(operator, Start.TRIM_HORIZON)
    assert conflicts == [[]]
    assert {row.key.shard_id for row in moved} == {P, LOW, HIGH}
    assert {row.start for row in moved} == {time}
    assert await seek_and_find_conflicts(operator, time) == []


async def test_a_seek_to_latest_reports_shards_that_another_reopened(
    world: World,
) -> None:
    operator, other = await resharded(world), Operator(world)

    async def seek() -> None:
        await other.seek(Start.TRIM_HORIZON)

    operator.context = world.context("operator", store=BeforeSeek(world, MERGED, seek))
    moved = await seek_and_find_conflicts(operator, Start.LATEST)
    assert {row.key.shard_id for row in moved} == {P, LOW, HIGH}
    assert await seek_and_find_conflicts(operator, Start.LATEST) == []


async def test_a_child_is_opened_if_its_parents_end_before_it_is_seeked(
    world: World,
) -> None:
    operator = await resharded(world)

    async def end() -> None:
        for shard_id in (P, LOW, HIGH):
            await operator.change(shard_id, ended=True, ready=True)

    operator.context = world.context("operator", store=BeforeSeek(world, MERGED, end))
    await operator.seek(Start.TRIM_HORIZON)
    assert operator.rows[MERGED].ready


async def test_children_created_since_the_plan_are_seeked_with_their_parent(
    world: World,
) -> None:
    operator = await created(world)
    planned = await plan(operator)
    world.kinesis.split("orders", P)
    await sync_shards(operator.context, world.open(world.kinesis.source("orders")))
    await operator.change(P, ended=True)
    for shard_id in (LOW, HIGH):
        await operator.change(shard_id, ready=True, sequence_number="5")
    seeked = await seek.seek(operator.context, planned)
    assert {row.key.shard_id for row in seeked} == {P, LOW, HIGH}
    assert ready(operator) == {P}
    assert {row.position for row in operator.rows.values()} == {None}


async def test_a_child_isnt_opened_while_a_parent_of_it_has_no_row_yet(
    world: World,
) -> None:
    operator = await created(world)
    world.kinesis.split("orders", P)
    world.kinesis.split("orders", LOW)
    # As after a crash of the leader: the last child has a row, its parent LOW has none.
    orphan = world.kinesis.stream("orders").shards[MERGED].shard
    assert orphan.parents == (LOW,)
    await world.table.write(
        shard_writes.create_shard(APP, lineage.new_row(ARN, orphan))
    )
    await operator.seek(Start.LATEST, P)
    assert not operator.rows[MERGED].ready


async def test_a_seek_whose_response_is_lost_is_repeated(world: World) -> None:
    store = FaultyStore(world.table)
    operator = await created(world, store)
    await operator.change(P, sequence_number="5")
    store.spoil("unanswered", "epoch")
    [row] = await operator.seek(Start.TRIM_HORIZON)
    assert row == operator.rows[P]
    assert row.position is None


async def test_a_plan_writes_nothing(world: World) -> None:
    operator = await resharded(world)
    await operator.join("c1")
    world.table.on_write.append(lambda *_: pytest.fail("written"))
    planned = await plan(operator)
    assert {step.row.key.shard_id: step.row for step in planned.steps} == operator.rows


async def test_clients_are_notified_of_a_seek(world: World) -> None:
    operator = await resharded(world)
    await operator.join("c1")
    await operator.seek(Start.TRIM_HORIZON)
    assert operator.notices == {"c1": 1}


# --- seeks of one shard ---


async def test_one_shard_goes_to_a_position_that_exists(world: World) -> None:
    operator = Operator(world)
    world.put("a", "b")
    await operator.create_group()
    position = Position(world.kinesis.stream("orders").shards[P].log[0].sequence_number)
    [row] = await operator.seek(position, P)
    assert row.position == position
    assert operator.rows == {P: row}
    world.kinesis.expire("orders", world.clock.wall() + 3600)
    with pytest.raises(TrimmedPositionError):
        await operator.seek(position, P)
    assert operator.rows == {P: row}


async def test_one_shard_that_has_ended_isnt_seeked_alone(world: World) -> None:
    operator = await resharded(world)
    before = operator.rows
    with pytest.raises(ConfigurationError, match=r"has ended.*seek the whole stream"):
        await operator.seek(Start.TRIM_HORIZON, LOW)
    assert operator.rows == before


async def test_one_shard_that_waits_for_its_parents_still_waits(world: World) -> None:
    operator = Operator(world)
    world.kinesis.split("orders", P)
    await operator.create_group()
    [row] = await operator.seek(Start.LATEST, LOW)
    assert (row.ready, row.start.type) == (False, "AT_TIMESTAMP")


# --- seeks that are refused ---


async def test_a_position_needs_its_shard(world: World) -> None:
    operator = await created(world)
    with pytest.raises(ConfigurationError, match="name the shard"):
        await operator.seek(Position("5"))


async def test_a_stream_that_isnt_listed_yet_isnt_seeked(world: World) -> None:
    operator = Operator(world)
    stream = StreamRow(ARN, operator.stream.info.created_at, Start.TRIM_HORIZON)
    await world.table.write(writes.create_stream(APP, stream))
    with pytest.raises(ConfigurationError, match="haven't been listed yet"):
        await operator.seek(Start.TRIM_HORIZON)


async def test_a_recreated_stream_isnt_seeked(world: World) -> None:
    operator = await created(world)
    await spoil(world, rows.stream_key(APP, ARN), stream_created_at="5.0")
    with pytest.raises(StreamRecreatedError):
        await operator.seek(Start.TRIM_HORIZON)
