"""Test the shard rows that follow from a query's offset, in new and old groups."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from typing import Any

from kinesumer.errors import AccessDeniedError
from kinesumer.model.positions import (
    BEGINNING,
    END,
    After,
    Position,
    ShardPosition,
    StreamOffset,
)
from kinesumer.model.rows import QUERY_ID, ShardRow
from kinesumer.model.streams import HASH_KEYS, Shard, ShardKey, Start
from kinesumer.ports import Write, WriteResult
from kinesumer.spark.mirror import positions_of
from kinesumer.spark.shard_row_mirror import first_rows
from kinesumer.wire import rows
from tests.support.clients import numbers, spread
from tests.support.faulty import FaultySource
from tests.support.lease_owner import change
from tests.support.mirrored_query import HIGH, LOW, Log, P, Query, newest
from tests.support.mirrored_query import stored as stored_number
from tests.support.world import ARN, World

LOWEST = "shardId-000000000003"
MIDDLE = HASH_KEYS // 2
AT = Start(type="AT_TIMESTAMP", timestamp=1.5)
POSITION = Position("7", 3)
LISTED = (
    Shard(P, 0, HASH_KEYS - 1, (), ending_sequence_number="9"),
    Shard(LOW, 0, MIDDLE - 1, (P,), ending_sequence_number="9"),
    Shard(HIGH, MIDDLE, HASH_KEYS - 1, (P,)),
    Shard(LOWEST, 0, MIDDLE - 1, (LOW,)),
)


def laid(**named: ShardPosition) -> dict[str, ShardRow]:
    names = {"p": P, "low": LOW, "high": HIGH, "lowest": LOWEST}
    offset = {names[name]: place for name, place in named.items()}
    return {row.key.shard_id: row for row in first_rows(ARN, LISTED, offset)}


def test_a_new_group_begins_where_the_offset_says() -> None:
    found = laid(p=END, low=END, high=AT, lowest=After(POSITION, 0.0))
    assert {s for s, row in found.items() if row.ended} == {P, LOW}
    assert found[HIGH].start == AT
    assert found[LOWEST].position == POSITION
    assert found[HIGH].ready
    assert found[LOWEST].ready
    # Shards that an offset omits have ended.
    assert {s for s, row in laid(lowest=BEGINNING).items() if row.ended} == {P, LOW}


def test_children_of_unfinished_shards_wait() -> None:
    found = laid(p=After(POSITION, 0.0))
    assert [s for s, row in found.items() if row.ready] == [P]
    assert all(found[s].start == Start.TRIM_HORIZON for s in (LOW, HIGH, LOWEST))


def stored(*known: ShardRow) -> dict[str, ShardPosition]:
    return positions_of(ARN, known, LISTED)


def row(shard_id: str, parent: str = "", **values: Any) -> ShardRow:
    parents = frozenset({parent} - {""})
    key = ShardKey(ARN, shard_id)
    start = values.pop("start", Start.TRIM_HORIZON)
    return ShardRow(key, 0, HASH_KEYS - 1, start, parents, **values)


def test_every_row_has_a_position_while_it_waits_too() -> None:
    found = stored(
        row(P, position=POSITION, ready=True),
        row(LOW, P, start=AT),
        row(HIGH, P),
        row(LOWEST, LOW),
    )
    after = After(POSITION, 0.0)
    assert found == {P: after, LOW: AT, HIGH: BEGINNING, LOWEST: BEGINNING}


def test_a_listed_shard_without_a_row_is_read_unless_a_descendant_was() -> None:
    assert LOW in stored(row(P, ready=True), row(HIGH, P), row(LOWEST, LOW))
    assert LOW not in stored(row(P, ended=True), row(HIGH, P), row(LOWEST, ready=True))


def test_dropped_shards_have_no_position() -> None:
    ended = row("shardId-000000000000-old", ended=True)
    listed = [P, LOW, HIGH, LOWEST]
    assert [*stored(ended, *map(row, listed))] == listed


# --- with a query ---------------------------------------------------------------------


def at_now(world: World) -> Start:
    return Start(type="AT_TIMESTAMP", timestamp=world.clock.wall())


async def begin(world: World, shards: dict[str, ShardPosition], **config: Any) -> Query:
    created = world.kinesis.source("orders").describe_now().created_at
    log = Log({ARN: StreamOffset(created, shards)})
    query = await Query(world, log, **config).start()
    await query.tell()
    return query


async def test_clients_begin_where_a_query_did_that_read_nothing(world: World) -> None:
    world.put("before")
    await asyncio.sleep(5.0)
    query = await begin(world, {P: at_now(world)})
    await world.until(lambda: world.shard_rows())
    await asyncio.sleep(1.0)
    await query.stop()
    await asyncio.sleep(5.0)
    world.put("after")
    client = world.client("c1", start=Start.LATEST)
    await asyncio.sleep(20.0)
    assert client.texts == ["after"]
    start = rows.start_text(world.shard_rows()[P].start)
    group = world.table.rows("group#app")
    assert [r["start"] for r in group if r["sk"] == f"stream#{ARN}"] == [start]


async def test_a_crash_while_rows_are_created_is_repaired(world: World) -> None:
    world.kinesis.split("orders", P)
    query = await begin(world, {P: END, LOW: BEGINNING, HIGH: BEGINNING})
    await world.until(lambda: len(world.shard_rows()) > 0)
    query.kill()
    again = await Query(world, query.log).start()
    await again.tell()
    await world.until(lambda: owned(world) == {LOW, HIGH})


def owned(world: World) -> set[str]:
    return {s for s, r in world.shard_rows().items() if r.owner_id == QUERY_ID}


async def owning(world: World, *shards: str) -> Query:
    """Return a query that has claimed shards."""
    query = await Query(world).start()
    await query.batch()
    if len(shards) > 1:
        world.kinesis.split("orders", P)
        await query.batch()
    await world.until(lambda: owned(world) == {*shards})
    return query


async def test_a_closed_shard_ends_only_when_it_was_read(world: World) -> None:
    world.put("a", "b", "c")
    query = await Query(world).start()
    await query.batch(1)
    world.kinesis.split("orders", P)
    await query.batch(1)
    await asyncio.sleep(15.0)
    assert not world.shard_rows()[P].ended
    await query.batch()
    await world.until(lambda: world.shard_rows()[P].ended)


async def test_a_shard_ends_only_when_its_children_are_listed(world: World) -> None:
    query = await owning(world, P)
    source = FaultySource(world.kinesis.source("orders"))
    source.listing = source.list_shards_now()
    query.read_through(source)
    world.kinesis.split("orders", P)
    await query.batch()
    await asyncio.sleep(15.0)
    assert not world.shard_rows()[P].ended
    source.listing = None
    await world.until(lambda: owned(world) == {LOW, HIGH})


async def test_an_incomplete_listing_changes_nothing(world: World) -> None:
    world.kinesis.split("orders", P)
    query = await Query(world).start()
    source = FaultySource(world.kinesis.source("orders"))
    source.listing = source.list_shards_now()[:-1]
    query.read_through(source)
    await query.batch()
    await asyncio.sleep(15.0)
    assert not world.shard_rows()
    source.listing = None
    await world.until(lambda: world.shard_rows())


async def test_claims_beside_one_that_failed_are_kept(world: World) -> None:
    world.kinesis.create_stream("many", 4)
    query = await Query(world, None, "many").start()
    _deny_once(query, AccessDeniedError("dynamodb:UpdateItem", "a table"))

    def found() -> list[ShardRow]:
        return [*world.shard_rows("many").values()]

    await query.batch()
    await world.until(lambda: [r.owner_id for r in found()] == [QUERY_ID] * 4)
    await asyncio.sleep(6.0)
    spread(world, *numbers(0, 8), stream="many")
    await query.batch()
    await world.until(lambda: all(r.position for r in found()))
    assert all(r.epoch == 1 for r in found())


def _deny_once(query: Query, error: Exception) -> None:
    """Raise an error after the third claim, although the claim was applied."""
    apply, claims = query.store.write, count(1)

    async def deny(write: Write) -> WriteResult:
        written = await apply(write)
        if "claim" in write.set and next(claims) == 3:
            raise error
        return written

    query.store.write = deny  # type: ignore[method-assign]


async def test_a_shard_that_a_dead_session_took_is_claimed_back(world: World) -> None:
    query = await owning(world, P)
    await change(world, P, owner="a ghost's session", owner_id="ghost", epoch=2)
    for _ in range(3):
        world.put("a")
        await query.batch()
        await asyncio.sleep(6.0)
    found = world.shard_rows()[P]
    assert (found.owner_id, found.epoch) == (QUERY_ID, 3)
    assert stored_number(world) == newest(world)


async def test_rows_of_dropped_shards_are_pruned_meanwhile(world: World) -> None:
    query = await owning(world, LOW, HIGH)
    await asyncio.sleep(10.0)
    world.kinesis.expire("orders", world.clock.wall())
    for [arn, of_stream] in [*query.log.offset.items()]:
        rest = {s: place for s, place in of_stream.shards.items() if s != P}
        query.log.offset[arn] = replace(of_stream, shards=rest)
    for _ in range(800):
        world.put("more")
        await query.batch()
        await asyncio.sleep(3.0)
    assert {*world.shard_rows()} == {LOW, HIGH}
