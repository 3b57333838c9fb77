"""Test when on_assigned and on_revoked are called, and what waits for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.coordination import pauses
from kinesumer.errors import CommitTimeoutError, ConfigurationError
from kinesumer.model.positions import Position
from kinesumer.ops.group.seek import plan_seek
from kinesumer.ops.group.seek import seek as seek_planned
from tests.support.one_shard import OLDEST, shard
from tests.support.world import SHARD, InMemory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesumer import AssignedShard, Record
    from kinesumer.model.owned import RevokeReason
    from tests.support.world import World

HALF = 1 << 127  # the first hash key of the second of two shards


class User:
    """User code of a client that notes records and calls of its callbacks."""

    def __init__(self, world: World, client_id: str = "c1", **config: Any) -> None:
        self.client = InMemory(world, client_id, **config)
        self.world = world
        self.events: list[str] = []
        self.shards: list[AssignedShard] = []
        self.acked_late: list[Record] = []
        # What the callbacks and the loop do besides.
        self.on_assigned: Callable[[AssignedShard], Awaitable[None]] = _nothing
        self.on_revoked: Callable[[AssignedShard], Awaitable[None]] = _nothing
        self.on_record: Callable[[Record], Awaitable[None]] = _nothing

    async def assigned(self, shard: AssignedShard) -> None:
        self.shards.append(shard)
        self.events.append(f"assign {_number(shard.shard_id)}")
        await self.on_assigned(shard)
        self.events.append(f"assigned {_number(shard.shard_id)}")

    async def revoked(self, shard: AssignedShard, reason: RevokeReason) -> None:
        self.events.append(f"revoke {_number(shard.shard_id)} {reason}")
        await self.on_revoked(shard)
        self.events.append(f"revoked {_number(shard.shard_id)}")

    async def handle(self, record: Record) -> None:
        self.events.append(record.data.decode())
        await self.on_record(record)

    async def consume(self, streams: Any = "orders") -> None:
        """Iterate until the client leaves, within the client's block."""
        async with self.client:
            async for record in self.client.consume(
                streams,
                start=OLDEST,
                on_assigned=self.assigned,
                on_revoked=self.revoked,
            ):
                await self.handle(record)

    async def run(self, streams: Any = "orders") -> None:
        """Call a handler until the client leaves, within the client's block."""

        async def handle(record: Record) -> None:
            await self.handle(record)

        async with self.client:
            await self.client.run(
                streams,
                handle,
                start=OLDEST,
                on_assigned=self.assigned,
                on_revoked=self.revoked,
            )

    async def saw(self, event: str, seconds: float = 60.0) -> None:
        """Wait until an event was noted."""
        await self.world.until(lambda: event in self.events, seconds)


async def _nothing(_: object) -> None: ...


def _number(shard_id: str) -> int:
    return int(shard_id.removeprefix("shardId-"))


WAYS = pytest.mark.parametrize("way", [User.consume, User.run])
Way = "Callable[..., Awaitable[None]]"


@WAYS
async def test_calls_enclose_the_records_of_a_shard(world: World, way: Any) -> None:
    user = User(world)
    world.put("a", "b")
    task = asyncio.create_task(way(user))
    await user.saw("b")
    await user.client.leave()
    await task
    calls = ["revoke 0 closed", "revoked 0"]
    assert user.events == ["assign 0", "assigned 0", "a", "b", *calls]


@WAYS
async def test_callbacks_get_the_shard_and_its_fence(world: World, way: Any) -> None:
    world.put("a", "b")
    for number in (1, 2):
        user = User(world)
        task = asyncio.create_task(way(user))
        await user.saw("assigned 0")
        await asyncio.sleep(1)
        await user.client.leave()
        await task
        [given] = user.shards
        assert given.stream == "orders"
        assert given.shard_id == SHARD
        assert given.key == given.fence.shard == (given.stream_arn, SHARD)
        assert (given.fence.app, given.fence.epoch) == ("app", number)
    log = world.kinesis.stream("orders").shards[SHARD].log
    assert given.fence.position == Position(log[-1].sequence_number)


@WAYS
async def test_other_shards_go_on_while_a_callback_runs(world: World, way: Any) -> None:
    world.kinesis.create_stream("payments", 2)
    user = User(world)
    blocked = asyncio.Event()

    async def wait(given: AssignedShard) -> None:
        if given.shard_id == SHARD:
            await blocked.wait()

    user.on_assigned = wait
    world.put("a", stream="payments")
    world.put("b", stream="payments", hash_key=HALF)
    task = asyncio.create_task(way(user, "payments"))
    await user.saw("b")
    await asyncio.sleep(20)
    assert "a" not in user.events
    blocked.set()
    await user.saw("a")
    await user.client.leave()
    await task


@WAYS
async def test_a_shard_moves_after_its_last_record_and_the_call(
    world: World, way: Any
) -> None:
    world.kinesis.create_stream("payments", 2)
    user = User(world)
    owner: list[str] = []

    async def slowly(_: Record) -> None:
        await asyncio.sleep(3)

    async def look(given: AssignedShard) -> None:
        await asyncio.sleep(2)
        owner.append(world.shard_rows("payments")[given.shard_id].owner_id)

    user.on_record, user.on_revoked = slowly, look
    world.put(*"abcdef", stream="payments", hash_key=HALF)
    task = asyncio.create_task(way(user, "payments"))
    await user.saw("a")
    other = world.client("c2", "payments")
    await world.until(lambda: len(user.events) + len(other.texts) > 11)
    index = user.events.index("revoke 1 moved")
    read = [event for event in user.events if len(event) == 1]
    assert [*read, *other.texts] == [*"abcdef"]
    assert user.events.index(read[-1]) < index
    assert owner[0] == "c1"
    await user.client.leave()
    await task
    assert user.events[-2:] == ["revoke 0 closed", "revoked 0"]


async def test_what_a_call_acknowledges_is_stored_with_the_release(
    world: World,
) -> None:
    user = User(world, commit="manual", commit_interval_seconds=3600)
    kept: list[Record] = []

    async def keep(record: Record) -> None:
        kept.append(record)

    async def acknowledge(_: AssignedShard) -> None:
        await asyncio.sleep(1)
        for record in kept:
            user.client.ack(record)

    user.on_record, user.on_revoked = keep, acknowledge
    world.put("a", "b")
    task = asyncio.create_task(user.consume())
    await user.saw("b")
    began = world.clock.now()
    await pauses.pause(world.context("operator"), "orders", SHARD)
    await world.until(lambda: not shard(world).owner)
    assert world.clock.now() - began < 10
    assert shard(world).position == kept[-1].position
    assert user.events[-2:] == ["revoke 0 paused", "revoked 0"]
    await user.client.leave()
    await task


@pytest.mark.parametrize("commit", ["auto", "manual"])
async def test_a_parent_is_revoked_before_its_children_are_assigned(
    world: World, commit: str
) -> None:
    user = User(world, commit=commit)
    kept: list[Record] = []

    async def keep(record: Record) -> None:
        kept.append(record)

    async def acknowledge(_: AssignedShard) -> None:
        assert not shard(world).ended
        await asyncio.sleep(40)  # longer than drain_timeout_seconds
        assert not shard(world).ended
        for record in kept:
            if commit == "manual":
                user.client.ack(record)

    user.on_record, user.on_revoked = keep, acknowledge
    world.put("a", "b")
    world.kinesis.split("orders", SHARD)
    world.put("c", hash_key=HALF)
    task = asyncio.create_task(user.consume())
    await user.saw("c", 120)
    ends = ["revoke 0 ended", "revoked 0"]
    assert user.events[:6] == ["assign 0", "assigned 0", "a", "b", *ends]
    assert sorted(user.events[6:]) == sorted(
        ["assign 1", "assigned 1", "assign 2", "assigned 2", "c"]
    )
    user.on_revoked = _nothing
    await user.client.leave()
    await task


async def test_a_closed_shard_waits_for_the_acknowledgements_of_others(
    world: World,
) -> None:
    user = User(world, commit="manual")
    kept: list[Record] = []

    async def keep(record: Record) -> None:
        kept.append(record)

    user.on_record = keep
    world.put("a")
    world.kinesis.split("orders", SHARD)
    task = asyncio.create_task(user.consume())
    await user.saw("revoked 0")
    await asyncio.sleep(60)
    assert not shard(world).ended
    user.client.ack(kept[0])
    await user.saw("assigned 2")
    assert shard(world).ended
    await user.client.leave()
    await task


@WAYS
async def test_a_seeked_shard_is_assigned_again(world: World, way: Any) -> None:
    user = User(world)
    world.put("a")
    task = asyncio.create_task(way(user))
    await user.saw("a")
    stream = world.open(world.kinesis.source("orders"))
    operator = world.context("operator")
    await seek_planned(operator, await plan_seek(operator, stream, OLDEST, SHARD))
    await world.until(lambda: user.events.count("a") == 2)
    calls = ["assign 0", "assigned 0", "a"]
    assert user.events == [*calls, "revoke 0 seeked", "revoked 0", *calls]
    first, second = (given.fence.epoch for given in user.shards)
    assert first < second
    await user.client.leave()
    await task


@WAYS
async def test_a_lost_shard_is_revoked_after_the_record_in_hand(
    world: World, way: Any
) -> None:
    user = User(world)

    async def hang(_: Record) -> None:
        await asyncio.sleep(100)
        user.events.append("done")

    user.on_record = hang
    world.put("a")
    task = asyncio.create_task(way(user))
    await user.saw("a")
    user.client.store.down = True
    await asyncio.sleep(20)
    other = world.client("c2")
    await world.until(lambda: other.texts == ["a"], 40)
    user.client.store.down = False
    await user.saw("done", 120)
    await user.saw("revoked 0")
    index = user.events.index("revoke 0 lost")
    assert user.events[index - 1] == "done"
    user.on_record = _nothing
    await user.client.leave()
    await task


@WAYS
async def test_a_shard_is_lost_when_the_lease_has_run_out_before_the_end(
    world: World, way: Any
) -> None:
    user = User(world)
    world.put("a")
    task = asyncio.create_task(way(user))
    await user.saw("a")
    user.client.store.down = True
    await asyncio.sleep(20)
    began = world.clock.now()
    await user.client.leave()
    with pytest.raises(CommitTimeoutError):
        await task
    # Other clients may have claimed the shard by now.
    assert user.events[-2:] == ["revoke 0 lost", "revoked 0"]
    # The store is given the length of a lease, whatever time callbacks may take: once
    # at the end of run(), and once at the end of the block.
    assert world.clock.now() - began <= 16.2


async def test_a_client_that_gets_its_lost_shard_back_revokes_it_first(
    world: World,
) -> None:
    user = User(world)

    async def slowly(_: AssignedShard) -> None:
        await asyncio.sleep(50)

    user.on_revoked = slowly
    world.put("a")
    task = asyncio.create_task(user.consume())
    await user.saw("a")
    await world.table.write(_death(world))
    await user.saw("revoked 0", 120)
    world.put("b")
    await user.saw("b")
    calls = ["revoke 0 lost", "revoked 0", "assign 0", "assigned 0"]
    assert [event for event in user.events[3:] if event not in "ab"] == calls
    user.on_revoked = _nothing
    await user.client.leave()
    await task


def _death(world: World) -> Any:
    from kinesumer.wire import writes
    from tests.support.world import APP

    return writes.leave(APP, world.members()["c1"], "now")


# --- what a call may take -------------------------------------------------------------


async def test_a_release_waits_for_a_call_no_longer_than_the_drain_timeout(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    user = User(world, drain_timeout_seconds=5.0)

    async def slowly(_: AssignedShard) -> None:
        await asyncio.sleep(30)

    user.on_revoked = slowly
    world.put("a")
    task = asyncio.create_task(user.consume())
    await user.saw("a")
    await pauses.pause(world.context("operator"), "orders", SHARD)
    await user.saw("revoke 0 paused")
    await asyncio.sleep(4)
    assert shard(world).owner
    await asyncio.sleep(2)
    assert not shard(world).owner
    assert "on_revoked didn't return within 5 s" in caplog.text
    await pauses.resume(world.context("operator"), "orders", SHARD)
    await world.until(lambda: user.events.count("assigned 0") == 2)
    assert user.events[-3:] == ["revoked 0", "assign 0", "assigned 0"]
    user.on_revoked = _nothing
    await user.client.leave()
    await task


async def test_a_shard_given_up_during_on_assigned_is_revoked_when_it_returned(
    world: World,
) -> None:
    user = User(world)

    async def slowly(_: AssignedShard) -> None:
        await asyncio.sleep(20)

    user.on_assigned = slowly
    world.put("a")
    task = asyncio.create_task(user.consume())
    await user.saw("assign 0")
    await pauses.pause(world.context("operator"), "orders", SHARD)
    await user.saw("revoked 0")
    await world.until(lambda: not shard(world).owner)
    given = ["assign 0", "assigned 0", "revoke 0 paused", "revoked 0"]
    assert user.events == given
    await user.client.leave()
    await task


async def test_a_client_ends_though_a_call_hangs(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    user = User(world)
    cancelled: list[str] = []

    async def hang(given: AssignedShard) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(given.shard_id)
            raise

    user.on_revoked = hang
    world.put("a")
    task = asyncio.create_task(user.consume())
    await user.saw("a")
    task.cancel()
    await asyncio.wait([task], timeout=60)
    await asyncio.sleep(0)
    assert task.cancelled()
    assert cancelled == [SHARD]
    assert not shard(world).owner


async def test_the_end_waits_for_no_record_of_a_lost_shard(world: World) -> None:
    user = User(world)
    world.put("a")
    async with user.client:
        async for record in user.client.consume(
            "orders", start=OLDEST, on_assigned=user.assigned, on_revoked=user.revoked
        ):
            user.events.append(record.data.decode())
            await world.table.write(_death(world))
            await asyncio.sleep(30)
            assert shard(world).epoch == 2
            break
        began = world.clock.now()
    assert world.clock.now() - began < 5
    given = ["assign 0", "assigned 0", "a", "revoke 0 lost", "revoked 0"]
    assert user.events == given


async def test_a_hanging_call_gives_the_shards_up(world: World) -> None:
    user = User(world, max_processing_seconds=30.0)

    async def hang(_: AssignedShard) -> None:
        await asyncio.sleep(300)

    user.on_assigned = hang
    world.put("a")
    task = asyncio.create_task(user.consume())
    await user.saw("assign 0")
    other = world.client("c2")
    await world.until(lambda: other.texts == ["a"], 90)
    user.on_assigned = _nothing
    await user.client.leave()
    await asyncio.wait_for(task, 400)


async def test_leaving_a_block_revokes_shards_whose_record_is_in_hand(
    world: World,
) -> None:
    user = User(world)
    world.put("a")
    async with user.client:
        async for record in user.client.consume(
            "orders", start=OLDEST, on_revoked=user.revoked
        ):
            user.events.append(record.data.decode())
            break
    assert user.events == ["a", "revoke 0 closed", "revoked 0"]
    assert shard(world).position is None


# --- errors ---------------------------------------------------------------------------


@WAYS
async def test_an_error_of_on_assigned_ends_the_client(world: World, way: Any) -> None:
    user = User(world)

    async def fail(_: AssignedShard) -> None:
        raise OSError("no disk")

    user.on_assigned = fail
    world.put("a")
    with pytest.raises(OSError, match="no disk"):
        await asyncio.wait_for(way(user), 60)
    assert user.events == ["assign 0"]
    assert not shard(world).owner


@WAYS
async def test_an_error_of_on_revoked_ends_the_client(world: World, way: Any) -> None:
    user = User(world)

    async def fail(_: AssignedShard) -> None:
        raise OSError("no disk")

    user.on_revoked = fail
    world.put("a")
    task = asyncio.create_task(way(user))
    await user.saw("a")
    await pauses.pause(world.context("operator"), "orders", SHARD)
    with pytest.raises(OSError, match="no disk"):
        await asyncio.wait_for(task, 60)
    assert user.events == ["assign 0", "assigned 0", "a", "revoke 0 paused"]
    assert not shard(world).owner


@WAYS
async def test_an_end_is_not_stored_if_on_revoked_failed(
    world: World, way: Any
) -> None:
    user = User(world)

    async def fail(_: AssignedShard) -> None:
        raise OSError("no disk")

    user.on_revoked = fail
    world.put("a")
    world.kinesis.split("orders", SHARD)
    with pytest.raises(OSError, match="no disk"):
        await asyncio.wait_for(way(user), 60)
    assert not shard(world).ended
    again = User(world, "c2")
    task = asyncio.create_task(way(again))
    await again.saw("assigned 2")
    calls = ["assign 0", "assigned 0", "revoke 0 ended", "revoked 0"]
    assert again.events[:4] == calls
    await again.client.leave()
    await task


@WAYS
async def test_an_error_at_the_end_is_raised_by_the_end(world: World, way: Any) -> None:
    user = User(world)

    async def fail(_: AssignedShard) -> None:
        raise SystemExit(3)

    user.on_revoked = fail
    world.put("a")
    task = asyncio.create_task(_ended_with(way(user)))
    await user.saw("a")
    user.client._lifecycle.group.delivery.close()  # type: ignore[union-attr]
    assert isinstance(await asyncio.wait_for(task, 60), SystemExit)
    assert not shard(world).owner


async def _ended_with(work: Any) -> BaseException | None:
    try:
        await work
    except BaseException as error:
        return error
    return None


async def test_the_error_of_a_block_goes_before_one_of_on_revoked(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    user = User(world)

    async def fail(_: object) -> None:
        raise OSError("no disk")

    async def fail_first(_: object) -> None:
        raise ValueError("no number")

    user.on_record, user.on_revoked = fail_first, fail
    world.put("a")
    with pytest.raises(ValueError, match="no number"):
        await user.consume()
    assert "on_revoked failed at orders shardId-000000000000" in caplog.text


async def test_a_call_that_cancels_itself_is_an_error(world: World) -> None:
    user = User(world)

    async def cancel(_: AssignedShard) -> None:
        raise asyncio.CancelledError

    user.on_assigned = cancel
    with pytest.raises(Exception, match="on_assigned was cancelled"):
        await asyncio.wait_for(user.consume(), 60)


# --- arguments ------------------------------------------------------------------------


async def test_plain_functions_run_on_the_event_loop(world: World) -> None:
    calls: list[str] = []
    world.put("a")
    async with InMemory(world) as client:
        async for record in client.consume(
            "orders",
            start=OLDEST,
            on_assigned=lambda given: calls.append(given.shard_id),
            on_revoked=lambda _, reason: calls.append(reason),
        ):
            calls.append(record.data.decode())
            break
    assert calls == [SHARD, "a", "closed"]


def _generator(_: object) -> Any:
    yield


@pytest.mark.parametrize("name", ["on_assigned", "on_revoked"])
async def test_what_is_no_function_is_refused(world: World, name: str) -> None:
    given: Any
    async with InMemory(world) as client:
        for given, text in ((7, "must be a function"), (_generator, "is a generator")):
            options: Any = {name: given}
            with pytest.raises(ConfigurationError, match=f"{name}=.*{text}"):
                client.consume("orders", **options)
            with pytest.raises(ConfigurationError, match=f"{name}=.*{text}"):
                await client.run("orders", print, batch=False, **options)
