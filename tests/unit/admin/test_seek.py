"""Seeks: the rows that result, concurrent changes, and rejected seeks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesumer.admin import seek
from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.core import lineage
from kinesumer.errors import (
    ConfigurationError,
    StreamRecreatedError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.rows import StreamRow
from kinesumer.model.streams import Start
from kinesumer.ports import Compare, Write
from kinesumer.wire import rows, writes
from tests.support.operator import HIGH, LOW, MERGED, Desk, Meanwhile, P, resharded
from tests.support.world import (
    APP,
    ARN,
    DateAhead,
    FaultyStore,
    World,
    in_virtual_time,
)

if TYPE_CHECKING:
    from kinesumer.model.rows import ShardRow

# --- seeks of a stream ---


@in_virtual_time
async def test_a_seek_back_reads_ended_shards_again_parents_first(
    world: World,
) -> None:
    desk = await resharded(world)
    before = desk.rows
    written: list[str] = []
    world.table.on_write.append(lambda w, _old, _new: written.append(w.key.sk[33:]))
    sought = await desk.seek(Start.TRIM_HORIZON)
    assert written[0] == P
    assert set(written[1:3]) == {LOW, HIGH}
    assert written[3:] == [MERGED]
    assert {row.key.shard_id: row for row in sought} == desk.rows
    for shard_id, row in desk.rows.items():
        assert row.epoch == before[shard_id].epoch + 1
        assert (row.start, row.position, row.ended, row.claim) == (
            Start.TRIM_HORIZON,
            None,
            False,
            "",
        )
        assert row.ready is (shard_id == P)
    # It may still be delivering: it gives the shard up by itself.
    assert desk.rows[MERGED].owner == "s-c1"


@in_virtual_time
async def test_a_seek_to_a_time_moves_every_shard(world: World) -> None:
    desk = await resharded(world)
    then = Start(type="AT_TIMESTAMP", timestamp=world.clock.wall() - 60)
    await desk.seek(then)
    assert {row.start for row in desk.rows.values()} == {then}
    assert {row.position for row in desk.rows.values()} == {None}


@in_virtual_time
async def test_a_seek_to_latest_leaves_ended_shards(world: World) -> None:
    desk = await resharded(world)
    before = desk.rows
    [sought] = await desk.seek(Start.LATEST)
    after = desk.rows
    assert sought.key.shard_id == MERGED
    now = world.kinesis.source("orders").describe_now().now
    assert sought.start == Start(type="AT_TIMESTAMP", timestamp=now)
    assert (sought.ready, sought.ended, sought.epoch) == (True, False, 5)
    for shard_id in (P, LOW, HIGH):
        assert after[shard_id] == before[shard_id]


@in_virtual_time
async def test_a_seek_to_latest_goes_to_a_time_that_kinesis_has_reached(
    world: World,
) -> None:
    desk = await resharded(world)
    desk.stream.source = DateAhead(world.kinesis.source("orders"), 5.0)
    [sought] = await desk.seek(Start.LATEST)
    assert sought.start.timestamp is not None
    assert sought.start.timestamp <= world.clock.wall()


@in_virtual_time
async def test_shards_without_a_row_get_the_position_too(world: World) -> None:
    desk = Desk(world)
    await desk.found()
    world.kinesis.split("orders", P)
    await desk.seek(Start.LATEST)
    assert len({row.start for row in desk.rows.values()}) == 1
    assert {shard_id: row.ready for shard_id, row in desk.rows.items()} == {
        P: True,
        LOW: False,
        HIGH: False,
    }


@in_virtual_time
async def test_unlisted_shards_are_unchanged(
    world: World,
) -> None:
    desk = await resharded(world)
    before = desk.rows
    del world.kinesis.stream("orders").shards[P]
    await desk.seek(Start.TRIM_HORIZON)
    assert desk.rows[P] == before[P]
    assert {i: row.ready for i, row in desk.rows.items()} == {
        P: True,
        LOW: True,
        HIGH: True,
        MERGED: False,
    }


@in_virtual_time
async def test_a_row_that_changes_meanwhile_is_seeked_as_it_is_then(
    world: World,
) -> None:
    desk = await resharded(world)
    planned = await seek.plan_seek(desk.context, desk.stream, Start.TRIM_HORIZON)
    await desk.change(MERGED, epoch=8, owner="s-c2", owner_id="c2", ended=True)
    await seek.seek(desk.context, planned)
    row = desk.rows[MERGED]
    assert (row.epoch, row.owner, row.ended, row.position) == (9, "s-c2", False, None)


@in_virtual_time
async def test_a_shard_that_ends_before_a_seek_to_latest_remains_ended(
    world: World,
) -> None:
    desk = await resharded(world)
    planned = await seek.plan_seek(desk.context, desk.stream, Start.LATEST)
    await desk.change(MERGED, epoch=8, ended=True)
    assert await seek.seek(desk.context, planned) == []
    assert desk.rows[MERGED].ended


async def seek_and_look(desk: Desk, to: Start) -> list[ShardRow]:
    """Seek, and return the shards that another seek moved meanwhile."""
    planned = await seek.plan_seek(desk.context, desk.stream, to)
    sought = await seek.seek(desk.context, planned)
    return await seek.conflicting_seeks(desk.context, [planned], sought)


@in_virtual_time
async def test_the_last_of_two_seeks_reports_shards_of_the_other(
    world: World,
) -> None:
    desk, other = await resharded(world), Desk(world)
    told: list[list[ShardRow]] = []

    async def seek() -> None:
        told.append(await seek_and_look(other, moment))

    # It comes when all shards but the last have the other place.
    moment = Start(type="AT_TIMESTAMP", timestamp=world.clock.wall() - 5)
    desk.context = world.context("operator", store=Meanwhile(world, MERGED, seek))
    moved = await seek_and_look(desk, Start.TRIM_HORIZON)
    assert told == [[]]
    assert {row.key.shard_id for row in moved} == {P, LOW, HIGH}
    assert {row.start for row in moved} == {moment}
    assert await seek_and_look(desk, moment) == []


@in_virtual_time
async def test_a_seek_to_latest_reports_shards_that_another_reopened(
    world: World,
) -> None:
    desk, other = await resharded(world), Desk(world)

    async def seek() -> None:
        await other.seek(Start.TRIM_HORIZON)

    desk.context = world.context("operator", store=Meanwhile(world, MERGED, seek))
    moved = await seek_and_look(desk, Start.LATEST)
    assert {row.key.shard_id for row in moved} == {P, LOW, HIGH}
    assert await seek_and_look(desk, Start.LATEST) == []


@in_virtual_time
async def test_a_child_is_opened_if_its_parents_end_before_it_is_seeked(
    world: World,
) -> None:
    desk = await resharded(world)

    async def end() -> None:
        for shard_id in (P, LOW, HIGH):
            await desk.change(shard_id, ended=True, ready=True)

    desk.context = world.context("operator", store=Meanwhile(world, MERGED, end))
    await desk.seek(Start.TRIM_HORIZON)
    assert desk.rows[MERGED].ready


@in_virtual_time
async def test_children_created_since_the_plan_are_seeked_with_their_parent(
    world: World,
) -> None:
    desk = Desk(world)
    await desk.found()
    planned = await seek.plan_seek(desk.context, desk.stream, Start.TRIM_HORIZON)
    world.kinesis.split("orders", P)
    await sync_shards(desk.context, world.open(world.kinesis.source("orders")))
    await desk.change(P, ended=True)
    for shard_id in (LOW, HIGH):
        await desk.change(shard_id, ready=True, sequence_number="5")
    sought = await seek.seek(desk.context, planned)
    assert {row.key.shard_id for row in sought} == {P, LOW, HIGH}
    assert {i: (row.ready, row.position) for i, row in desk.rows.items()} == {
        P: (True, None),
        LOW: (False, None),
        HIGH: (False, None),
    }


@in_virtual_time
async def test_a_child_isnt_opened_while_a_parent_of_it_has_no_row_yet(
    world: World,
) -> None:
    desk = Desk(world)
    await desk.found()
    world.kinesis.split("orders", P)
    world.kinesis.split("orders", LOW)
    # Of what a keeper was creating, a crash left out the one in the middle.
    orphan = world.kinesis.stream("orders").shards[MERGED].shard
    assert orphan.parents == (LOW,)
    await world.table.write(writes.create_shard(APP, lineage.child_row(ARN, orphan)))
    await desk.seek(Start.LATEST, P)
    assert not desk.rows[MERGED].ready


@in_virtual_time
async def test_a_seek_whose_response_is_lost_is_repeated(world: World) -> None:
    store = FaultyStore(world.table)
    desk = Desk(world, store)
    await desk.found()
    await desk.change(P, sequence_number="5")
    store.spoil("unanswered", "epoch")
    [row] = await desk.seek(Start.TRIM_HORIZON)
    assert row == desk.rows[P]
    assert row.position is None


@in_virtual_time
async def test_a_plan_writes_nothing(world: World) -> None:
    desk = await resharded(world)
    await desk.join("c1")
    world.table.on_write.append(lambda *_: pytest.fail("written"))
    planned = await seek.plan_seek(desk.context, desk.stream, Start.TRIM_HORIZON)
    assert {step.row.key.shard_id: step.row for step in planned.steps} == desk.rows


@in_virtual_time
async def test_clients_are_notified_of_a_seek(world: World) -> None:
    desk = await resharded(world)
    await desk.join("c1")
    await desk.seek(Start.TRIM_HORIZON)
    assert desk.notices == {"c1": 1}


# --- seeks of one shard ---


@in_virtual_time
async def test_one_shard_goes_to_a_position(world: World) -> None:
    desk = Desk(world)
    world.put("a", "b")
    await desk.found()
    number = world.kinesis.stream("orders").shards[P].log[0].sequence_number
    [row] = await desk.seek(Position(number), P)
    assert row.position == Position(number)
    assert desk.rows[P] == row


@in_virtual_time
async def test_one_shard_that_has_ended_isnt_seeked_alone(world: World) -> None:
    desk = await resharded(world)
    before = desk.rows
    with pytest.raises(ConfigurationError, match=r"has ended.*seek the whole stream"):
        await desk.seek(Start.TRIM_HORIZON, LOW)
    assert desk.rows == before


@in_virtual_time
async def test_one_shard_that_ends_before_it_is_seeked_stays_so(
    world: World,
) -> None:
    desk = await resharded(world)
    planned = await seek.plan_seek(
        desk.context, desk.stream, Start.TRIM_HORIZON, MERGED
    )
    await desk.change(MERGED, ended=True)
    assert await seek.seek(desk.context, planned) == []
    assert desk.rows[MERGED].ended


@in_virtual_time
async def test_one_shard_that_waits_for_its_parents_still_waits(
    world: World,
) -> None:
    desk = Desk(world)
    world.kinesis.split("orders", P)
    await desk.found()
    [row] = await desk.seek(Start.LATEST, LOW)
    assert (row.ready, row.start.type) == (False, "AT_TIMESTAMP")


# --- seeks that are refused ---


@in_virtual_time
async def test_a_position_needs_its_shard(world: World) -> None:
    desk = Desk(world)
    await desk.found()
    with pytest.raises(ConfigurationError, match="name the shard"):
        await desk.seek(Position("5"))


@in_virtual_time
async def test_an_expired_position_is_rejected(world: World) -> None:
    desk = Desk(world)
    world.put("a", "b")
    await desk.found()
    number = world.kinesis.stream("orders").shards[P].log[0].sequence_number
    world.kinesis.expire("orders", world.clock.wall() + 3600)
    before = desk.rows
    with pytest.raises(TrimmedPositionError):
        await desk.seek(Position(number), P)
    assert desk.rows == before


@in_virtual_time
async def test_a_stream_that_isnt_listed_yet_isnt_seeked(world: World) -> None:
    desk = Desk(world)
    stream = StreamRow(ARN, desk.stream.info.created_at, Start.TRIM_HORIZON)
    await world.table.write(writes.create_stream(APP, stream))
    with pytest.raises(ConfigurationError, match="haven't been listed yet"):
        await desk.seek(Start.TRIM_HORIZON)


@in_virtual_time
async def test_a_recreated_stream_isnt_seeked(world: World) -> None:
    desk = Desk(world)
    await desk.found()
    key = rows.stream_key(APP, ARN)
    made = {"stream_created_at": "5.0"}
    await world.table.write(Write(key, Compare("pk", "exists"), made))
    with pytest.raises(StreamRecreatedError):
        await desk.seek(Start.TRIM_HORIZON)
