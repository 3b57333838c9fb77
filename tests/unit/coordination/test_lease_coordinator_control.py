"""Test claims while operators change shards, after stale reads and late answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesumer.model.incidents import IncidentKind
from kinesumer.model.positions import Position
from kinesumer.model.rows import Key, Row
from kinesumer.model.streams import ShardKey
from kinesumer.wire import admin_writes, rows, writes
from tests.support.lease_owner import WHOLE, Owner, P, change, own
from tests.support.world import APP, ARN, World

GROUP = f"group#{APP}"
EVERYTHING = rows.group_key(APP)
STREAM = rows.stream_key(APP, ARN)
SHARD = rows.shard_key(APP, ShardKey(ARN, P), 0)


async def mark(world: World, key: Key) -> None:
    """Mark a shard, a stream or the group as paused in its row."""
    await world.table.write(writes.create_group(APP, "group"))
    assert (await world.table.write(admin_writes.pause(key, "maintenance"))).applied


async def unmark(world: World, key: Key) -> None:
    assert (await world.table.write(admin_writes.resume(key))).applied


def notice(owner: Owner) -> None:
    """Tell the session of a notice, as the answer to a heartbeat does."""
    owner.member = owner.member._replace(notice=owner.member.notice + 1)
    owner.coordinator.update_member(owner.member)


@pytest.mark.parametrize("key", [EVERYTHING, STREAM, SHARD])
async def test_a_notice_of_a_pause_releases_and_one_of_its_end_claims(
    world: World, key: Key
) -> None:
    owner = await own(world, "a")
    await mark(world, key)
    notice(owner)
    await owner.owns(seconds=0.5)
    row = owner.row()
    assert (row.owner, row.epoch) == ("", 1)
    assert row.position is not None
    assert owner.coordinator.pending == []
    world.put("b")
    await asyncio.sleep(120)
    assert owner.texts == ["a"]
    await unmark(world, key)
    notice(owner)
    await owner.owns(P, seconds=0.5)
    await world.until(lambda: owner.texts == ["a", "b"])


@pytest.mark.parametrize("key", [EVERYTHING, STREAM, SHARD])
async def test_a_new_session_claims_no_paused_shard(world: World, key: Key) -> None:
    owner = await Owner(world).begin()
    owner.running.cancel()
    await mark(world, key)
    second = Owner(world, "c2")
    await world.table.write(writes.register(APP, second.member, None, "now"))
    second.running = world.loop.create_task(second.coordinator.run())
    second.plan(WHOLE)
    await asyncio.sleep(700)
    assert second.held() == []
    assert not second.store.writes("claim")


@pytest.mark.parametrize(("key", "seconds"), [(SHARD, 0), (STREAM, 600)])
async def test_a_pause_without_notice_is_met_all_the_same(
    world: World, key: Key, seconds: float
) -> None:
    owner = await own(world)
    await mark(world, key)
    await asyncio.sleep(seconds)
    await owner.owns(seconds=61)


async def test_a_stale_read_of_a_past_pause_releases_nothing(world: World) -> None:
    owner = await own(world)
    old = owner.row()._replace(paused=True, epoch=0, owner="")
    owner.coordinator._apply_operator_change(owner.owned(), old)
    await asyncio.sleep(1)
    assert owner.held() == [P]


async def test_notice_is_heeded_when_the_store_answers_again(world: World) -> None:
    owner = await own(world)
    await mark(world, STREAM)
    owner.store.down = True
    notice(owner)
    await asyncio.sleep(3)
    assert owner.held() == [P]
    owner.store.down = False
    await owner.owns(seconds=3)


async def test_pauses_are_read_every_five_minutes(world: World) -> None:
    owner = await own(world)
    owner.store.queried.clear()
    await asyncio.sleep(3600)
    assert owner.store.queried.count(GROUP) in (11, 12)


async def test_a_stale_read_proves_no_death(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own(world)
    second = await Owner(world, "c2").begin()
    get = world.table.get

    async def stale(key: Key, *, consistent: bool = True) -> Row | None:
        row = await get(key)
        return row if consistent or row is None else row | {"session": "before"}

    monkeypatch.setattr(second.store, "get", stale)
    second.plan(WHOLE)
    await asyncio.sleep(5)
    assert second.coordinator.pending
    assert not second.store.writes("claim")


async def test_reading_goes_on_from_the_position_in_the_claims_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await Owner(world).begin()
    world.put("a")
    _, number = world.kinesis.put("orders", b"b", explicit_hash_key=0)
    world.put("c")
    query = world.table.query
    before = await query(f"shard#app#{owner.stream.arn}")
    await change(world, P, sequence_number=number)

    async def stale(pk: str, **how: Any) -> list[Row]:
        return before if pk.startswith("shard#") else await query(pk, **how)

    monkeypatch.setattr(owner.store, "query", stale)
    owner.plan(WHOLE)
    await owner.owns(P)
    assert owner.owned().row.position == Position(number)
    await world.until(lambda: owner.texts)
    assert owner.texts == ["c"]


async def test_a_shard_that_is_claimed_again_and_again_is_an_incident(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    owner = await own(world)
    for _ in range(2):
        assert owner.context.incidents.current() == []
        owner.coordinator.on_rejected(owner.owned(), None)
        owner.coordinator.poll_now()
        await owner.owns(P)
    [incident] = owner.context.incidents.current()
    assert incident.kind is IncidentKind.REPEATED_CLAIM
    assert (incident.stream_arn, incident.shard_id) == (ARN, P)
    assert f"shard {P} of stream orders: The shard is claimed again" in caplog.text


async def test_a_position_that_kinesis_rejects_is_an_incident(world: World) -> None:
    owner = await Owner(world).begin()
    await change(world, P, sequence_number="1")
    owner.plan(WHOLE)
    await asyncio.sleep(300)
    [incident] = owner.context.incidents.current()
    assert incident.kind is IncidentKind.REJECTED_POSITION
    assert incident.shard_id == P
    assert "StartingSequenceNumber 1 used" in incident.error
    assert owner.held() == []


async def test_a_claim_answered_after_the_session_is_dropped(world: World) -> None:
    owner = await Owner(world).begin()
    owner.store.latency = 0.2
    owner.plan(WHOLE)
    await asyncio.sleep(0.3)  # the rows were read, and the claim was sent
    owner.lease.end()
    await asyncio.sleep(5)
    assert owner.row().owner == owner.session
    assert owner.held() == []
