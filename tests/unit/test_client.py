"""Test the client's arguments, start, manual commits and end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer import (
    Kinesumer,
    ShardAssignment,
    ShardKey,
    ShardLag,
    ShardPositions,
    Start,
    Stream,
)
from kinesumer.errors import (
    AccessDeniedError,
    ConfigurationError,
    GroupBusyError,
    KinesumerError,
    ShardsLostError,
    StateStoreMissingError,
    StreamMissingError,
)
from kinesumer.model.rows import Key
from kinesumer.ports import Compare, Write
from kinesumer.wire import rows
from tests.support.faulty import FaultyStore
from tests.support.one_shard import OLDEST, consume, place, shard
from tests.support.world import APP, ARN, SHARD, InMemory, World, in_virtual_time

if TYPE_CHECKING:
    from kinesumer import Record
    from kinesumer.consuming.records import Records
    from kinesumer.ports import WriteResult


# --- what is refused ---

UNSTORABLE = ["", "  ", "a#b", "new\nline", "x" * 256, "ü" * 128]


@pytest.mark.parametrize("name", UNSTORABLE)
@pytest.mark.parametrize("what", ["app", "client_id", "table"])
def test_names_that_cannot_be_part_of_a_key_are_refused(what: str, name: Any) -> None:
    names: dict[str, Any] = {"app": "app", "table": "table", what: name}
    with pytest.raises(ConfigurationError, match=f"{what}=.* choose another one"):
        Kinesumer(**names)


@pytest.mark.parametrize("name", ["a", "a b", "ünï", "x" * 255, "a/b:c.d"])
def test_other_names_are_accepted(name: str) -> None:
    assert Kinesumer(name, table=name, client_id=name).client_id == name


def test_the_table_is_that_of_the_environment_or_the_commands_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KINESUMER_TABLE", raising=False)
    assert Kinesumer("app").table == rows.STATE_STORE
    monkeypatch.setenv("KINESUMER_TABLE", "other")
    assert Kinesumer("app").table == "other"
    assert Kinesumer("app", table="named").table == "named"
    monkeypatch.setenv("KINESUMER_TABLE", "a#b")
    with pytest.raises(ConfigurationError, match="table='a#b' contains"):
        Kinesumer("app")


def test_clients_without_an_id_get_a_unique_one() -> None:
    one, other = (Kinesumer("app", table="table").client_id for _ in range(2))
    assert one != other


@in_virtual_time
async def test_consuming_outside_the_block_or_twice_is_refused(world: World) -> None:
    with pytest.raises(ConfigurationError, match="async with"):
        Kinesumer("app", table="table").consume("orders")
    async with InMemory(world) as client:
        client.consume("orders")
        with pytest.raises(ConfigurationError, match=r"refresh\(\)"):
            client.consume("payments")


@in_virtual_time
async def test_invalid_streams_and_starts_are_refused(world: World) -> None:
    invalid: list[Any] = [
        [],
        (),
        [""],
        "",
        [7],
        [None],
        [b"orders"],
        b"orders",
        7,
        None,
    ]
    start: Any = 7
    async with InMemory(world) as client:
        for streams in invalid:
            with pytest.raises(ConfigurationError, match="stream"):
                client.consume(streams)
        with pytest.raises(ConfigurationError, match="start=7 must be a Start"):
            client.consume("orders", start=start)


@in_virtual_time
async def test_ack_needs_manual_commits(world: World) -> None:
    world.put("a")
    async with InMemory(world) as client:
        async for record in client.consume("orders", start=OLDEST):
            with pytest.raises(ConfigurationError, match='commit="manual"'):
                client.ack(record)
            break


@in_virtual_time
async def test_commit_and_refresh_need_a_running_client(world: World) -> None:
    async with InMemory(world) as client:
        client.consume("orders")
        await client.leave()
        for call in (client.commit(), client.refresh("orders")):
            with pytest.raises(KinesumerError, match="iterate over consume"):
                await call


@in_virtual_time
async def test_leaving_during_the_start_ends_the_iteration(world: World) -> None:
    world.put("a")
    async with InMemory(world) as client:
        first = asyncio.create_task(consume(client, 1))
        await asyncio.sleep(0.1)
        await client.leave()
        assert await asyncio.wait_for(first, 1) == []


def future(world: World) -> Start:
    now = datetime.fromtimestamp(world.clock.wall(), UTC)
    return Start.at(now + timedelta(hours=1))


@in_virtual_time
async def test_the_first_record_reports_what_aws_rejects(world: World) -> None:
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
    world.table.delete_table()
    async with InMemory(world) as client:
        with pytest.raises(StateStoreMissingError):
            await consume(client, 1)


@in_virtual_time
async def test_the_next_record_retries_a_failed_start(world: World) -> None:
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
async def test_after_a_failed_start_consume_may_be_called_again(world: World) -> None:
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


class DeniesAfterRegistration(FaultyStore):
    """A store whose first write of a member is applied, and gets an error."""

    async def write(self, write: Write) -> WriteResult:
        written = await super().write(write)
        if write.key.pk == f"member#{APP}" and len(self.sent) == 1:
            raise AccessDeniedError("dynamodb:GetItem", "table")
        return written


@in_virtual_time
async def test_a_registered_client_may_retry_its_start(world: World) -> None:
    world.put("a")
    ports = world.ports(store=DeniesAfterRegistration(world.table))
    async with InMemory(world, ports=ports) as client:
        records = client.consume("orders", start=OLDEST)
        with pytest.raises(AccessDeniedError):
            await anext(records)
        assert (await anext(records)).data == b"a"
        assert not world.members()["c1"].dead
    assert len(asyncio.all_tasks()) == 1


@in_virtual_time
async def test_a_client_that_has_left_does_not_start(world: World) -> None:
    async with InMemory(world) as client:
        records = client.consume("payments")
        with pytest.raises(StreamMissingError):
            await anext(records)
        await client.leave()
        world.kinesis.create_stream("payments")
        assert [record async for record in records] == []
    assert world.members() == {}


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


# --- cancelled requests ---


@in_virtual_time
async def test_requests_with_a_timeout_may_be_repeated_during_the_start(
    world: World,
) -> None:
    world.put("a")
    async with InMemory(world) as client:
        records = client.consume("orders", start=OLDEST)
        record = None
        while record is None:
            with suppress(TimeoutError):
                record = await asyncio.wait_for(anext(records), 0.1)
            assert world.clock.now() < 5
        assert record.data == b"a"


@in_virtual_time
async def test_a_cancelled_start_leaves_nothing_behind(world: World) -> None:
    async with InMemory(world) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consume(client, 1), 0.3)
    assert world.members() == {}
    assert len(asyncio.all_tasks()) == 1


# --- manual commits ---


@in_virtual_time
async def test_acks_in_any_order_commit_the_contiguous_prefix(world: World) -> None:
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
async def test_a_commit_names_shards_that_other_clients_own(world: World) -> None:
    world.put("a", "b")
    async with InMemory(world, commit="manual") as client:
        records = client.consume("orders", start=OLDEST)
        a, b = await anext(records), await anext(records)
        key = rows.shard_key(APP, shard(world).key, 0)
        taken: dict[str, str | int] = {"owner": "thief", "epoch": 9}
        await world.table.write(Write(key, Compare("pk", "exists"), taken))
        client.ack(a)
        with pytest.raises(ShardsLostError, match=f"orders/{SHARD}") as caught:
            await client.commit()
        assert caught.value.shards == [(ARN, SHARD)]
        await client.commit()
        client.ack(b)
        with pytest.raises(ShardsLostError):
            await client.commit()
    assert shard(world).position is None


# --- leaving the block while another task has a record ---


@pytest.mark.parametrize("end", ["asks", "returns", "fails"])
@in_virtual_time
async def test_leaving_waits_while_another_task_has_the_record(
    world: World, end: str
) -> None:
    async def work(records: Records) -> None:
        await asyncio.wait_for(anext(records), 60)
        got.set()
        await asyncio.sleep(5)
        if end == "fails":
            raise ValueError
        if end == "asks":
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(anext(records), 60)

    world.put("a")
    got = asyncio.Event()
    async with InMemory(world) as client:
        working = asyncio.create_task(work(client.consume("orders", start=OLDEST)))
        await got.wait()
        began = world.clock.now()
    assert 5 <= world.clock.now() - began < 6
    await asyncio.wait([working])
    assert isinstance(working.exception(), ValueError) == (end == "fails")
    assert shard(world).position == (place(world, 0) if end == "asks" else None)


@in_virtual_time
async def test_a_task_with_a_record_may_leave_at_once(world: World) -> None:
    world.put("a")
    async with InMemory(world) as client:
        await asyncio.wait_for(anext(client.consume("orders", start=OLDEST)), 60)
        began = world.clock.now()
    assert world.clock.now() - began < 1


# --- what the client tells about its shards ---


@in_virtual_time
async def test_a_client_tells_its_shards_positions_and_lag_without_requests(
    world: World,
) -> None:
    key = ShardKey(ARN, SHARD)
    client = InMemory(world, commit_interval_seconds=30.0)
    assert (client.assignment(), client.positions(), client.lag()) == ({}, {}, {})
    async with client:
        world.put("a", "b", "c")
        records = client.consume("orders", start=OLDEST)
        await anext(records)
        await asyncio.sleep(2)
        assert client.assignment() == {
            key: ShardAssignment(shard(world).epoch, "delivering")
        }
        assert client.positions() == {key: ShardPositions(None, None)}
        lag = client.lag()[key]
        assert (lag.records_in_hand, lag.records_uncommitted) == (1, 3)
        assert lag.read_seconds == lag.commit_seconds
        assert lag.read_seconds is not None
        assert 2 <= lag.read_seconds < 20

        await anext(records)
        assert client.positions()[key] == ShardPositions(None, place(world, 0))
        await client.commit()
        assert client.positions()[key] == ShardPositions(
            place(world, 0), place(world, 0)
        )

        await anext(records)
        waiting = asyncio.ensure_future(anext(records))
        await asyncio.sleep(5)
        lag = client.lag()[key]
        assert (lag.read_seconds, lag.records_in_hand) == (0.0, 0)
        # The last two records are done, and their position is not stored yet.
        assert lag.records_uncommitted == 2
        assert lag.commit_seconds is not None
        assert 5 <= lag.commit_seconds < 30
        await client.commit()
        assert client.lag()[key] == ShardLag(0.0, 0.0, 0, 0)
        waiting.cancel()
    assert (client.assignment(), client.positions(), client.lag()) == ({}, {}, {})


@in_virtual_time
async def test_the_lag_counts_records_that_wait_for_user_code(world: World) -> None:
    world.kinesis.create_stream("payments")
    async with InMemory(world) as client:
        records = client.consume(["orders", "payments"], start=OLDEST)
        for stream in ("orders", "payments"):
            world.kinesis.put(stream, b"a")
        first = await anext(records)
        await asyncio.sleep(10)
        lag = client.lag()
        assert len(lag) == 2
        assert [each.records_in_hand for each in lag.values()].count(1) == 1
        assert lag[first.fence.shard].records_in_hand == 1
        assert all(
            each.read_seconds and each.read_seconds >= 10 for each in lag.values()
        )


# --- the record in hand at the end, and limits ---


@in_virtual_time
async def test_a_block_that_ends_without_an_error_acknowledges_the_record_in_hand(
    world: World,
) -> None:
    world.put(*"abcdefgh")
    async with InMemory(world) as client:
        async with client.consume("orders", start=OLDEST) as records:
            async for record in records:
                if record.data == b"b":
                    break
    assert shard(world).position == place(world, 1)
    with pytest.raises(ValueError, match="d"):
        async with InMemory(world) as client, client.consume("orders") as records:
            async for record in records:
                if record.data == b"d":
                    raise ValueError("d")
    assert shard(world).position == place(world, 2)
    async with InMemory(world) as client:
        async with client.consume("orders").batches() as batches:
            batch = await anext(batches)
        assert batch.records[0].data == b"d"
        assert (
            client.positions()[ShardKey(ARN, SHARD)].done == batch.records[-1].position
        )


@in_virtual_time
async def test_a_loop_may_be_closed_with_and_without_an_acknowledgement(
    world: World,
) -> None:
    world.put(*"abcd")
    async with InMemory(world) as client:
        records = client.consume("orders", start=OLDEST)
        await anext(records)
        await records.aclose(ack=True)
        assert client.positions()[ShardKey(ARN, SHARD)].done == place(world, 0)
        assert [(await anext(records)).data for _ in range(2)] == [b"b", b"c"]
        await records.aclose()
        assert client.lag()[ShardKey(ARN, SHARD)].records_in_hand == 1
    assert shard(world).position == place(world, 1)


@in_virtual_time
async def test_a_limit_ends_the_loop_with_all_its_records_done(world: World) -> None:
    world.put(*"abcdefgh")
    async with InMemory(world) as client:
        records = client.consume("orders", start=OLDEST, limit=3)
        assert [record.data async for record in records] == [b"a", b"b", b"c"]
        assert [record.data async for record in records] == []
    assert shard(world).position == place(world, 2)
    async with InMemory(world) as client:
        batches = client.consume("orders", limit=2).batches()
        assert [len(batch) async for batch in batches] == [2]
    assert shard(world).position == place(world, 4)


@in_virtual_time
async def test_a_limit_counts_the_records_that_user_code_gets(world: World) -> None:
    world.put(*"1x2x3456")
    async with InMemory(world) as client:
        records = client.consume(
            "orders", start=OLDEST, decode=int, on_decode_error="skip", limit=3
        )
        assert [record.value async for record in records] == [1, 2, 3]
    assert shard(world).position == place(world, 4)


@in_virtual_time
async def test_with_manual_commits_a_limit_counts_deliveries(world: World) -> None:
    world.put(*"abcd")
    async with InMemory(world, commit="manual") as client:
        records = client.consume("orders", start=OLDEST, limit=3)
        async with records:
            seen = [record async for record in records]
            for record in seen[:2]:
                client.ack(record)
        assert [record.data for record in seen] == [b"a", b"b", b"c"]
        with pytest.raises(ConfigurationError, match=r"client\.ack\(\)"):
            await records.aclose(ack=True)
    assert shard(world).position == place(world, 1)


@in_virtual_time
async def test_several_tasks_share_a_limit_and_all_of_them_end(world: World) -> None:
    world.put(*"abcdefgh")
    async with InMemory(world, commit="manual") as client:
        records = client.consume("orders", start=OLDEST, limit=5)

        async def task() -> list[bytes]:
            return [r.data async for batch in records.batches() for r in batch.records]

        found = await asyncio.gather(task(), task(), task())
        texts = sorted(data.decode() for one in found for data in one)
        assert texts == [*"abcde"]


@pytest.mark.parametrize("limit", [0, -1, True, 2.0, "3"])
async def test_other_limits_are_refused(limit: Any) -> None:
    async with Kinesumer("app") as client:
        with pytest.raises(ConfigurationError, match="at least 1"):
            client.consume("orders", limit=limit)
