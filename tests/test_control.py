"""What operators change: rows as clients find them, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesumer import control, lookup
from kinesumer.core import lineage
from kinesumer.errors import (
    ConfigurationError,
    GroupHeldError,
    StreamReplacedError,
    TrimmedPositionError,
)
from kinesumer.keeper import keep
from kinesumer.model import Position, Start
from kinesumer.ports import Key, Test, Write
from kinesumer.wire import rows, writes
from kinesumer.wire.rows import MemberRow
from tests.engine import APP, ARN, FaultyStore, World, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesumer.streams import OpenStream
    from kinesumer.wire.rows import ShardRow

P, LOW, HIGH, MERGED = (f"shardId-{n:012}" for n in range(4))


class Desk:
    """An operator's desk before the group of the stream "orders"."""

    def __init__(self, world: World, store: Any = None) -> None:
        self.world = world
        self.context = world.context("operator", store=store)
        self.stream: OpenStream = world.open(world.kinesis.source("orders"))

    async def found(self) -> None:
        """Make the group, and the rows of the stream as it is."""
        await self.world.table.write(writes.create_group(APP, "g"))
        await keep(self.context, self.stream)

    async def join(self, client_id: str, **fields: Any) -> MemberRow:
        """Have a client register."""
        member = MemberRow(
            client_id, f"s-{client_id}", streams=frozenset({ARN}), **fields
        )
        await self.world.table.write(writes.register(APP, member, None, "now"))
        return member

    async def seek(
        self, to: Start | Position, shard_id: str | None = None
    ) -> list[ShardRow]:
        planned = await control.plan_seek(self.context, self.stream, to, shard_id)
        return await control.seek(self.context, planned)

    async def change(self, shard_id: str, **values: Any) -> None:
        """Change a shard's row as its owner would."""
        row = self.rows[shard_id]
        key = writes.shard_row_key(APP, row)
        await self.world.table.write(Write(key, Test("pk", "exists"), values))

    @property
    def rows(self) -> dict[str, ShardRow]:
        return self.world.shard_rows()

    def row(self, key: Key) -> dict[str, Any]:
        [found] = [r for r in self.world.table.rows(key.pk) if r["sk"] == key.sk]
        return found

    @property
    def notices(self) -> dict[str, int]:
        return {name: row.notice for name, row in self.world.members().items()}


async def resharded(world: World) -> Desk:
    """A split and a merge, all read to the end but the last child, which c1 owns."""
    desk = Desk(world)
    world.kinesis.split("orders", P)
    world.kinesis.merge("orders", LOW, HIGH)
    await desk.found()
    for shard_id in (P, LOW, HIGH):
        await desk.change(shard_id, ready=True, ended=True, sequence_number="77")
    owned = {"ready": True, "owner": "s-c1", "owner_id": "c1", "epoch": 4}
    await desk.change(MERGED, **owned, sequence_number="99", claim="nonce")
    return desk


# --- pauses ---


@in_virtual_time
async def test_a_pause_marks_the_row_of_what_it_is_for(world: World) -> None:
    desk = Desk(world)
    await desk.found()
    for stream, shard, key in (
        (None, None, rows.group_key(APP)),
        ("orders", None, rows.stream_key(APP, ARN)),
        ("orders", P, rows.shard_key(APP, desk.rows[P].key, 0)),
    ):
        await control.pause(desk.context, stream, shard, "bad data")
        row = desk.row(key)
        assert (row["paused"], row["pause_reason"]) == (True, "bad data")
        await control.resume(desk.context, stream, shard)
        assert not {"paused", "pause_reason"} & desk.row(key).keys()


@in_virtual_time
async def test_a_pause_tells_what_it_is_for_and_what_was_before(world: World) -> None:
    desk = Desk(world)
    await desk.found()
    marked = await control.pause(desk.context, ARN, P, "first")
    assert (str(marked.target), marked.was_paused) == (
        f"shard {P} of stream orders",
        False,
    )
    marked = await control.pause(desk.context, ARN, P, "second")
    assert (marked.was_paused, marked.was_reason) == (True, "first")
    assert desk.rows[P].pause_reason == "second"
    marked = await control.resume(desk.context, ARN, P)
    assert (marked.was_paused, marked.was_reason) == (True, "second")


@in_virtual_time
async def test_every_live_client_is_told_of_a_pause(world: World) -> None:
    desk = Desk(world)
    await desk.found()
    await desk.join("c1")
    await desk.join("c2")
    await world.table.write(writes.leave(APP, await desk.join("gone"), "now"))
    await control.pause(desk.context)
    assert desk.notices == {"c1": 1, "c2": 1, "gone": 0}
    await control.resume(desk.context)
    assert desk.notices == {"c1": 2, "c2": 2, "gone": 0}


@in_virtual_time
async def test_a_notice_whose_answer_is_lost_is_given_once(world: World) -> None:
    store = FaultyStore(world.table)
    desk = Desk(world, store)
    await desk.found()
    await desk.join("c1")
    store.spoil("unanswered", "notice")
    await control.notify(desk.context)
    assert desk.notices == {"c1": 1}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (("payments", None), f"no stream 'payments'; it has {ARN}"),
        (("orders", "shardId-9"), "no shard 'shardId-9'"),
        ((None, P), "say of which stream"),
    ],
)
@in_virtual_time
async def test_what_the_app_doesnt_know_cant_be_paused(
    world: World, target: tuple[str | None, str | None], said: str
) -> None:
    desk = Desk(world)
    await desk.found()
    with pytest.raises(ConfigurationError, match=said):
        await control.pause(desk.context, *target)


@in_virtual_time
async def test_an_app_that_nobody_has_used_has_nothing_to_change(
    world: World,
) -> None:
    context = Desk(world).context
    for work in (
        control.pause(context),
        control.pause(context, "orders"),
        lookup.read_streams(context),
    ):
        with pytest.raises(ConfigurationError, match="no app 'app'"):
            await work


@in_virtual_time
async def test_a_name_that_two_streams_have_isnt_enough(world: World) -> None:
    desk = Desk(world)
    await desk.found()
    other = ARN.replace("123456789012", "210987654321")
    stream = rows.StreamRow(other, 1.0, Start.TRIM_HORIZON)
    await world.table.write(writes.create_stream(APP, stream))
    with pytest.raises(ConfigurationError, match=f"several streams.*{ARN}.*{other}"):
        await control.pause(desk.context, "orders")
    await control.pause(desk.context, other)


@in_virtual_time
async def test_a_reason_has_to_be_short(world: World) -> None:
    desk = Desk(world)
    await desk.found()
    with pytest.raises(ConfigurationError, match="201 characters"):
        await control.pause(desk.context, reason="x" * 201)


# --- drained clients ---


@in_virtual_time
async def test_a_client_is_drained_and_let_in_again(world: World) -> None:
    desk = Desk(world)
    for client_id in ("c1", "c2"):
        await desk.join(client_id)
    assert not (await control.drain(desk.context, "c1")).drained
    assert {name: m.drained for name, m in world.members().items()} == {
        "c1": True,
        "c2": False,
    }
    assert (await control.drain(desk.context, "c1", undo=True)).drained
    assert not world.members()["c1"].drained


@in_virtual_time
async def test_the_last_client_that_takes_shards_isnt_drained(world: World) -> None:
    desk = Desk(world)
    await desk.join("c1")
    await desk.join("c2")
    await control.drain(desk.context, "c2")
    with pytest.raises(ConfigurationError, match="c1 is the last client"):
        await control.drain(desk.context, "c1")
    assert not world.members()["c1"].drained
    await control.drain(desk.context, "c1", even_last=True)
    assert world.members()["c1"].drained


@in_virtual_time
async def test_only_clients_that_live_are_drained(world: World) -> None:
    desk = Desk(world)
    await desk.join("c1")
    await world.table.write(writes.leave(APP, await desk.join("c2"), "now"))
    with pytest.raises(ConfigurationError, match=r"no client 'c2'.*there is c1"):
        await control.drain(desk.context, "c2")


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
async def test_a_seek_to_a_time_has_every_shard_begin_then(world: World) -> None:
    desk = await resharded(world)
    then = Start(type="AT_TIMESTAMP", timestamp=world.clock.wall() - 60)
    await desk.seek(then)
    assert {row.start for row in desk.rows.values()} == {then}
    assert {row.position for row in desk.rows.values()} == {None}


@in_virtual_time
async def test_a_seek_to_latest_leaves_what_has_ended(world: World) -> None:
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
async def test_shards_that_nobody_has_met_yet_get_the_place_too(world: World) -> None:
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
async def test_shards_that_kinesis_has_forgotten_stay_as_they_are(
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
async def test_what_changes_meanwhile_is_sought_as_it_is_then(world: World) -> None:
    desk = await resharded(world)
    planned = await control.plan_seek(desk.context, desk.stream, Start.TRIM_HORIZON)
    await desk.change(MERGED, epoch=8, owner="s-c2", owner_id="c2", ended=True)
    await control.seek(desk.context, planned)
    row = desk.rows[MERGED]
    assert (row.epoch, row.owner, row.ended, row.position) == (9, "s-c2", False, None)


@in_virtual_time
async def test_what_ends_before_it_is_sought_to_latest_has_ended(
    world: World,
) -> None:
    desk = await resharded(world)
    planned = await control.plan_seek(desk.context, desk.stream, Start.LATEST)
    await desk.change(MERGED, epoch=8, ended=True)
    assert await control.seek(desk.context, planned) == []
    assert desk.rows[MERGED].ended


class Meanwhile(FaultyStore):
    """Does something once, right before the first seek of a shard arrives."""

    def __init__(
        self, world: World, shard_id: str, work: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(world.table)
        self._shard_id = shard_id
        self._work: Callable[[], Awaitable[None]] | None = work

    async def write(self, write: Write) -> Any:
        is_it = write.key.sk.endswith(self._shard_id) and "epoch" in write.set
        if is_it and self._work is not None:
            work, self._work = self._work, None
            await work()
        return await super().write(write)


@in_virtual_time
async def test_a_child_is_opened_whose_parents_end_before_it_is_sought(
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
async def test_children_born_since_the_plan_are_sought_with_their_parent(
    world: World,
) -> None:
    desk = Desk(world)
    await desk.found()
    planned = await control.plan_seek(desk.context, desk.stream, Start.TRIM_HORIZON)
    world.kinesis.split("orders", P)
    await keep(desk.context, world.open(world.kinesis.source("orders")))
    await desk.change(P, ended=True)
    for shard_id in (LOW, HIGH):
        await desk.change(shard_id, ready=True, sequence_number="5")
    sought = await control.seek(desk.context, planned)
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
async def test_a_seek_whose_answer_is_lost_is_made(world: World) -> None:
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
    planned = await control.plan_seek(desk.context, desk.stream, Start.TRIM_HORIZON)
    assert {step.row.key.shard_id: step.row for step in planned.steps} == desk.rows


@in_virtual_time
async def test_clients_are_told_of_a_seek(world: World) -> None:
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
async def test_one_shard_that_has_ended_isnt_sought_alone(world: World) -> None:
    desk = await resharded(world)
    before = desk.rows
    with pytest.raises(ConfigurationError, match=r"has ended.*seek the whole stream"):
        await desk.seek(Start.TRIM_HORIZON, LOW)
    assert desk.rows == before


@in_virtual_time
async def test_one_shard_that_ends_before_it_is_sought_stays_so(
    world: World,
) -> None:
    desk = await resharded(world)
    planned = await control.plan_seek(
        desk.context, desk.stream, Start.TRIM_HORIZON, MERGED
    )
    await desk.change(MERGED, ended=True)
    assert await control.seek(desk.context, planned) == []
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
    with pytest.raises(ConfigurationError, match="say of which shard"):
        await desk.seek(Position("5"))


@in_virtual_time
async def test_a_place_that_retention_has_passed_is_refused(world: World) -> None:
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
async def test_a_stream_that_nobody_has_listed_yet_isnt_sought(world: World) -> None:
    desk = Desk(world)
    stream = rows.StreamRow(ARN, desk.stream.info.created_at, Start.TRIM_HORIZON)
    await world.table.write(writes.create_stream(APP, stream))
    with pytest.raises(ConfigurationError, match="haven't been listed yet"):
        await desk.seek(Start.TRIM_HORIZON)


@in_virtual_time
async def test_a_stream_made_anew_isnt_sought(world: World) -> None:
    desk = Desk(world)
    await desk.found()
    key = rows.stream_key(APP, ARN)
    made = {"stream_created_at": "5.0"}
    await world.table.write(Write(key, Test("pk", "exists"), made))
    with pytest.raises(StreamReplacedError):
        await desk.seek(Start.TRIM_HORIZON)


@in_virtual_time
async def test_nothing_is_changed_while_a_query_lives(world: World) -> None:
    desk = await resharded(world)
    before = desk.rows
    query = await desk.join(rows.QUERY_ID, kind=rows.QUERY)
    reads: list[object] = []

    async def beat() -> None:
        member = world.members()[rows.QUERY_ID]
        write = writes.heartbeat(APP, query, member.beat + 1, state="up", lease_ms=8000)
        await world.table.write(write)

    class Beating(FaultyStore):
        async def get(self, key: Key, *, consistent: bool = True) -> Any:
            reads.append(key)
            await beat()
            return await super().get(key, consistent=consistent)

    context = world.context("operator", store=Beating(world.table))
    for work in (
        control.pause(context),
        control.resume(context, "orders"),
        control.drain(context, "c1"),
        control.plan_seek(context, desk.stream, Start.LATEST),
    ):
        with pytest.raises(GroupHeldError, match="stop the query first"):
            await work
    assert desk.rows == before
