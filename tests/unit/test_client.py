"""The user's face: what is refused, what is asked for, manual commits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer import Config, Kinesumer, Start, Stream
from kinesumer.coordination.group import GroupConsumer
from kinesumer.coordination.heartbeat_thread import HeartbeatTask
from kinesumer.errors import (
    ConfigurationError,
    GroupBusyError,
    KinesumerError,
    ShardsLostError,
    StateStoreMissingError,
    StreamMissingError,
)
from kinesumer.model.positions import Position
from kinesumer.model.rows import Key
from kinesumer.ports import Compare, Write
from kinesumer.wire import rows
from tests.support.world import APP, ARN, FaultyStore, World, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer import Record
    from kinesumer.consuming.delivery_protocol import DeliveryProtocol
    from kinesumer.consuming.records import Records
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.model.rows import ShardRow

P = "shardId-000000000000"


class InMemory(Kinesumer):
    """A client on ports in memory."""

    def __init__(self, world: World, client_id: str = "c1", **config: Any) -> None:
        super().__init__(
            APP, table="table", client_id=client_id, config=Config(**config)
        )
        self.world = world
        self.store = FaultyStore(world.table)
        self._look: list[Exception] = []
        """What the end of a start raises, once each."""

    async def _build_group(self, delivery: DeliveryProtocol) -> GroupConsumer:
        await asyncio.sleep(0.5)
        delivery._clock = self.world.clock  # type: ignore[attr-defined]
        made = self.world.context(self.client_id, store=self.store)
        context = replace(made, config=self.config)
        warn_unsupported = delivery.warn_unsupported

        def look(streams: Iterable[OpenStream]) -> None:
            if self._look:
                raise self._look.pop()
            warn_unsupported(streams)

        delivery.warn_unsupported = look  # type: ignore[method-assign]
        return GroupConsumer(context, self._open, HeartbeatTask(context), delivery)

    async def _open(self, stream: Stream) -> Any:
        return self.world.kinesis.source(stream.name)


OLDEST = Start.TRIM_HORIZON


def shard(world: World) -> ShardRow:
    return world.shard_rows()[P]


def place(world: World, index: int) -> Position:
    log = world.kinesis.stream("orders").shards[P].log
    return Position(log[index].sequence_number)


async def consume(client: Kinesumer, count: int, streams: Any = "orders") -> list[str]:
    """Consume some records, and break with the last one in hand."""
    seen: list[str] = []
    records = client._records or client.consume(streams, start=OLDEST)
    async for record in records:
        seen.append(record.data.decode())
        if len(seen) == count:
            break
    return seen


# --- what is refused ---

UNSTORABLE = ["", "  ", "a#b", "new\nline", "x" * 256, "ü" * 128, 7, b"bytes"]


@pytest.mark.parametrize("name", UNSTORABLE)
@pytest.mark.parametrize("what", ["app", "client_id", "table"])
def test_names_that_cannot_be_part_of_a_key_are_refused(what: str, name: Any) -> None:
    names: dict[str, Any] = {"app": "app", "table": "table", what: name}
    with pytest.raises(ConfigurationError, match=f"{what}=.* choose another one"):
        Kinesumer(**names)


@pytest.mark.parametrize("name", ["a", "a b", "ünï", "x" * 255, "a/b:c.d"])
def test_other_names_are_fine(name: str) -> None:
    assert Kinesumer(name, table=name, client_id=name).client_id == name


def test_clients_without_an_id_get_one_of_their_own() -> None:
    one, other = (Kinesumer("app", table="table").client_id for _ in range(2))
    assert one != other


def test_consuming_outside_the_block_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="async with"):
        Kinesumer("app", table="table").consume("orders")


@in_virtual_time
async def test_consuming_twice_is_refused(world: World) -> None:
    async with InMemory(world) as client:
        client.consume("orders")
        with pytest.raises(ConfigurationError, match=r"refresh\(\)"):
            client.consume("payments")


@pytest.mark.parametrize("streams", [[], "", [""], [7]])
@in_virtual_time
async def test_no_streams_are_refused(world: World, streams: Any) -> None:
    async with InMemory(world) as client:
        with pytest.raises(ConfigurationError, match="stream"):
            client.consume(streams)


@in_virtual_time
async def test_a_start_must_be_a_start(world: World) -> None:
    start: Any = "LATEST"
    async with InMemory(world) as client:
        with pytest.raises(ConfigurationError, match="start='LATEST' must be a Start"):
            client.consume("orders", start=start)


@in_virtual_time
async def test_marking_needs_manual_commits(world: World) -> None:
    world.put("a")
    async with InMemory(world) as client:
        async for record in client.consume("orders", start=OLDEST):
            with pytest.raises(ConfigurationError, match='commit="manual"'):
                client.ack(record)
            break


@in_virtual_time
async def test_what_needs_a_running_client_says_so(world: World) -> None:
    async with InMemory(world) as client:
        client.consume("orders")
        await client.leave()
        for call in (client.commit(), client.refresh("orders")):
            with pytest.raises(KinesumerError, match="iterate over consume"):
                await call


@in_virtual_time
async def test_leaving_while_the_client_still_starts_ends_the_iteration(
    world: World,
) -> None:
    world.put("a")
    async with InMemory(world) as client:
        records = client.consume("orders", start=OLDEST)
        first = asyncio.create_task(anext(records, None))
        await asyncio.sleep(0.1)
        await client.leave()
        assert await asyncio.wait_for(first, 1) is None


def future(world: World) -> Start:
    now = datetime.fromtimestamp(world.clock.wall(), UTC)
    return Start.at(now + timedelta(hours=1))


@in_virtual_time
async def test_what_only_aws_can_tell_is_told_with_the_first_record(
    world: World,
) -> None:
    cases: list[tuple[Any, Start, type[Exception]]] = [
        ("missing", OLDEST, StreamMissingError),
        (["orders", ARN], OLDEST, ConfigurationError),
        ("orders", future(world), ConfigurationError),
        (Stream("orders", start=future(world)), OLDEST, ConfigurationError),
    ]
    for streams, start, error in cases:
        async with InMemory(world) as client:
            records = client.consume(streams, start=start)
            with pytest.raises(error):
                await anext(records)
            with pytest.raises(error):
                await anext(records)
    assert world.table.snapshot() == []


@in_virtual_time
async def test_a_start_that_failed_is_tried_again_with_the_next_record(
    world: World,
) -> None:
    async with InMemory(world) as client:
        records = client.consume("payments", start=OLDEST)
        with pytest.raises(StreamMissingError):
            await anext(records)
        world.kinesis.create_stream("payments")
        world.kinesis.put("payments", b"a", explicit_hash_key=0)
        record = await asyncio.wait_for(anext(records), 30)
        assert record.data == b"a"
    assert len(asyncio.all_tasks()) == 1


@in_virtual_time
async def test_after_a_start_that_failed_consume_or_run_may_be_called_again(
    world: World,
) -> None:
    seen: list[bytes] = []

    async def take(record: Record) -> None:
        seen.append(record.data)
        await client.leave()

    world.put("a")
    async with InMemory(world) as client:
        first = client.consume("payments", start=OLDEST)
        with pytest.raises(StreamMissingError):
            await anext(first)
        with pytest.raises(StreamMissingError):
            await anext(client.consume("payments"))
        with pytest.raises(StreamMissingError):
            await client.run("payments", take)
        with pytest.raises(ConfigurationError, match="the last call returned"):
            await anext(first)
        await client.run("orders", take, start=OLDEST)
    assert seen == [b"a"]


@in_virtual_time
async def test_a_client_that_was_registered_when_its_start_failed_may_try_again(
    world: World,
) -> None:
    world.put("a")
    async with InMemory(world) as client:
        looked = client._look = [ValueError("broken")]
        records = client.consume("orders", start=OLDEST)
        with pytest.raises(ValueError, match="broken"):
            await anext(records)
        assert not looked
        assert world.members()["c1"].dead
        assert (await anext(records)).data == b"a"
        assert not world.members()["c1"].dead
    assert len(asyncio.all_tasks()) == 1


@in_virtual_time
async def test_a_client_that_leaves_after_a_start_that_failed_starts_no_more(
    world: World,
) -> None:
    async with InMemory(world) as client:
        records = client.consume("payments")
        with pytest.raises(StreamMissingError):
            await anext(records)
        await client.leave()
        world.kinesis.create_stream("payments")
        assert [record async for record in records] == []
    assert world.members() == {}


@in_virtual_time
async def test_a_missing_table_is_told_with_the_first_record(world: World) -> None:
    world.table.delete_table()
    async with InMemory(world) as client:
        with pytest.raises(StateStoreMissingError):
            await consume(client, 1)


@in_virtual_time
async def test_a_live_go_fleet_under_the_same_app_is_refused(world: World) -> None:
    async def beat(app: str, client_id: str, age: float) -> None:
        moment = rows.timestamp_text(world.clock.wall() - age)
        key = Key(f"client#{app}", client_id)
        await world.table.write(
            Write(key, Compare("pk", "absent"), {"last_update": moment})
        )

    world.put("a")
    await beat(APP, "long gone", 3600)
    await beat("another", "alive", 1)
    async with InMemory(world) as client:
        assert await consume(client, 1) == ["a"]
    await beat(APP, "go-1", 5)
    async with InMemory(world) as client:
        with pytest.raises(GroupBusyError, match="go-1"):
            await consume(client, 1)


# --- asking ---


@in_virtual_time
async def test_asking_with_a_timeout_from_the_very_start_works(world: World) -> None:
    world.put("a")
    async with InMemory(world) as client:
        records = client.consume("orders", start=OLDEST)
        for _ in range(40):
            try:
                record = await asyncio.wait_for(anext(records), 0.1)
            except TimeoutError:
                continue
            assert record.data == b"a"
            return
        raise AssertionError("no record came")


@in_virtual_time
async def test_giving_up_before_the_start_is_over_leaves_nothing_behind(
    world: World,
) -> None:
    async with InMemory(world) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(client.consume("orders")), 0.3)
    assert world.members() == {}
    assert len(asyncio.all_tasks()) == 1


# --- manual commits ---


@in_virtual_time
async def test_marks_in_any_order_commit_the_contiguous_prefix(world: World) -> None:
    world.put("a", "b", "c")
    async with InMemory(world, commit="manual") as client:
        records = client.consume("orders", start=OLDEST)
        a, b, c = [await anext(records) for _ in range(3)]
        client.ack(c)
        await client.commit()
        assert shard(world).position is None
        client.ack(a)
        await client.commit()
        assert shard(world).position == place(world, 0)
        client.ack(b)
        await client.commit()
        assert shard(world).position == place(world, 2)


@in_virtual_time
async def test_a_commit_names_the_shards_that_others_own_by_now(world: World) -> None:
    world.put("a", "b")
    async with InMemory(world, commit="manual") as client:
        records = client.consume("orders", start=OLDEST)
        a, b = await anext(records), await anext(records)
        key = rows.shard_key(APP, shard(world).key, 0)
        taken: dict[str, str | int] = {"owner": "thief", "epoch": 9}
        await world.table.write(Write(key, Compare("pk", "exists"), taken))
        client.ack(a)
        with pytest.raises(ShardsLostError, match=f"orders/{P}") as caught:
            await client.commit()
        assert caught.value.shards == [(ARN, P)]
        await client.commit()
        client.ack(b)
        with pytest.raises(ShardsLostError):
            await client.commit()
    assert shard(world).position is None


# --- leaving the block while another task has a record ---


@in_virtual_time
async def test_leaving_waits_for_a_task_that_asks_by_wait_for(world: World) -> None:
    async def work(records: Records) -> None:
        await asyncio.wait_for(anext(records), 60)
        got.set()
        await asyncio.sleep(5)
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(records), 60)

    world.put("a")
    got = asyncio.Event()
    async with InMemory(world) as client:
        working = asyncio.create_task(work(client.consume("orders", start=OLDEST)))
        await got.wait()
    await working
    assert shard(world).position == place(world, 0)


@pytest.mark.parametrize("fails", [True, False])
@in_virtual_time
async def test_leaving_waits_no_longer_than_the_task_that_has_the_record_runs(
    world: World, fails: bool
) -> None:
    async def work(records: Records) -> None:
        await asyncio.wait_for(anext(records), 60)
        got.set()
        await asyncio.sleep(5)
        if fails:
            raise ValueError

    world.put("a")
    got = asyncio.Event()
    async with InMemory(world) as client:
        working = asyncio.create_task(work(client.consume("orders", start=OLDEST)))
        await got.wait()
        began = world.clock.now()
    assert working.done()
    assert world.clock.now() - began < 6
    assert shard(world).position is None


@in_virtual_time
async def test_who_has_a_record_by_wait_for_may_leave_at_once(world: World) -> None:
    world.put("a")
    async with InMemory(world) as client:
        await asyncio.wait_for(anext(client.consume("orders", start=OLDEST)), 60)
        began = world.clock.now()
    assert world.clock.now() - began < 1
