"""Tests SECURITY.md's statements about attackers who can write the state store.

Every write here is one that a hostile holder of dynamodb:UpdateItem can make. Other
tests decide what clients do about pauses, about identities that have changed, and about
rows of Spark's queries and of Kinesumer for Go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kinesumer.errors import (
    GroupBusyError,
)
from kinesumer.model.rows import Key, ShardRow, StreamRow, Value
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey, Start
from kinesumer.ops.group.observation import check_client
from kinesumer.ports import AnyOf, Compare, Write
from kinesumer.testing.memory import MemorySource
from kinesumer.wire import rows, shard_writes, writes
from tests.support.clients import reader
from tests.support.members import Fleet
from tests.support.world import APP, ARN, Client, World, in_virtual_time

SHARD = "shardId-000000000000"
SECRETS = ARN.replace("orders", "secrets")


async def forge(world: World, key: Key, **values: Value) -> None:
    """Write any attributes to a row, which is created if necessary."""
    anything = AnyOf(Compare("pk", "exists"), Compare("pk", "absent"))
    await world.table.write(Write(key, anything, values))


def shard_key() -> Key:
    return rows.shard_key(APP, ShardKey(ARN, SHARD), 0)


async def end_with(client: Client, error: type[Exception]) -> None:
    """Check that a client ends with an error."""
    with pytest.raises(error):
        await client.task


# --- what they can do ----------------------------------------------------------------


async def move_forward(world: World) -> None:
    [*_, last] = world.kinesis.stream("orders").shards[SHARD].log
    await forge(world, shard_key(), sequence_number=last.sequence_number)


async def give_to_a_client_that_seems_to_live(world: World) -> None:
    await Fleet(world).join("forged", session="forged")
    await forge(world, shard_key(), owner="forged", owner_id="forged")


@pytest.mark.parametrize("hide", [move_forward, give_to_a_client_that_seems_to_live])
@in_virtual_time
async def test_records_can_be_hidden(
    world: World, hide: Callable[[World], Awaitable[None]]
) -> None:
    client = await reader(world, "a")
    await client.stop()
    world.put("b", "c")
    await hide(world)
    client = world.client("c2")
    await asyncio.sleep(60)
    assert client.texts == []


@in_virtual_time
async def test_a_position_moved_back_repeats_records(world: World) -> None:
    client = await reader(world, "ab")
    await client.stop()
    [first, *_] = world.kinesis.stream("orders").shards[SHARD].log
    await forge(world, shard_key(), sequence_number=first.sequence_number)
    client = world.client("c2")
    await world.until(lambda: client.texts == ["b"])


@in_virtual_time
async def test_a_shard_can_be_given_to_two_clients_at_once(world: World) -> None:
    client = await reader(world, "a")
    row = world.shard_rows()[SHARD]
    await forge(world, shard_key(), owner="forged", epoch=row.epoch + 1)
    # From now on the forger can read the shard. The former owner notices the change at
    # its next commit, and reads until then.
    world.put("b")
    await world.until(lambda: client.texts == ["a", "b"])
    await asyncio.sleep(10)
    world.put("c")
    await asyncio.sleep(10)
    assert client.texts == ["a", "b"]


@in_virtual_time
async def test_a_session_marked_dead_costs_its_shards_and_is_followed_by_another(
    world: World,
) -> None:
    client = await reader(world, "a")
    before = world.members()["c1"].session
    await forge(world, rows.member_key(APP, "c1"), dead=True)
    world.put("b")
    await world.until(lambda: world.members()["c1"].session != before)
    await world.until(lambda: client.texts[-1] == "b")


@in_virtual_time
async def test_a_forged_leader_stops_plans(world: World) -> None:
    await reader(world, "a")
    await Fleet(world).join("forged", session="forged")
    key = rows.leader_key(APP)
    await forge(world, key, session="forged", client_id="forged", leader_epoch=99)
    other = world.client("c2")
    await asyncio.sleep(60)
    assert other.group.session is not None
    assert world.members()["c2"].range is None


@in_virtual_time
async def test_notices_cost_reads_and_nothing_else(world: World) -> None:
    client = await reader(world, "a")
    for notice in range(1, 60):
        await forge(world, rows.member_key(APP, "c1"), notice=notice * 1000)
        await asyncio.sleep(0.5)
    world.put("b")
    await world.until(lambda: client.texts == ["a", "b"])


@in_virtual_time
async def test_a_reset_that_never_ends_keeps_clients_from_starting(
    world: World,
) -> None:
    client = await reader(world, "a")
    await forge(world, rows.group_key(APP), resetting=True)
    await end_with(world.client("c2"), GroupBusyError)
    world.put("b")
    await world.until(lambda: client.texts == ["a", "b"])
    await forge(world, rows.member_key(APP, "c1"), dead=True)
    await end_with(client, GroupBusyError)


@in_virtual_time
async def test_a_row_that_beats_passes_for_a_client_that_lives(world: World) -> None:
    client = await reader(world, "a")
    await client.stop()

    async def beat() -> None:
        for number in range(1000, 1100):
            key = rows.member_key(APP, "c1")
            await forge(world, key, beat=number, session="forged", dead=False)
            await asyncio.sleep(0.5)

    beating = asyncio.create_task(beat())
    await asyncio.sleep(1)
    assert (await check_client(world.table, world.clock, APP, "c1")).alive
    beating.cancel()


# --- what they can't -----------------------------------------------------------------


@in_virtual_time
async def test_no_row_makes_a_client_read_a_stream_that_it_wasnt_given(
    world: World,
) -> None:
    world.kinesis.create_stream("secrets")
    world.kinesis.put("secrets", b"secret")
    opened: list[str] = []

    def source(name: str) -> MemorySource:
        opened.append(name)
        return world.kinesis.source(name)

    client = await reader(world, "a", source=source)
    shard = ShardRow(
        ShardKey(SECRETS, SHARD), 0, HASH_KEYS - 1, Start.TRIM_HORIZON, ready=True
    )
    stream = StreamRow(SECRETS, 1.0, Start.TRIM_HORIZON, baseline=True)
    for write in (
        writes.create_stream(APP, stream),
        shard_writes.create_shard(APP, shard),
    ):
        assert (await world.table.write(write)).applied
    both = frozenset({ARN, SECRETS})
    whole = tuple(Interval(arn, 0, HASH_KEYS - 1) for arn in sorted(both))
    for plan_version in range(100, 160):
        await forge(
            world,
            rows.member_key(APP, "c1"),
            streams=both,
            keeps=both,
            range=rows.range_text(whole, both),
            leader_epoch=99,
            plan_version=plan_version,
        )
        await asyncio.sleep(0.5)
    assert set(opened) == {"orders"}
    assert not any(
        held.key.stream_arn == SECRETS for held in client.group.owned_shards()
    )
    world.put("b")
    await world.until(lambda: client.texts[-1] == "b")
    assert set(client.texts) == {"a", "b"}
    assert not client.task.done()
