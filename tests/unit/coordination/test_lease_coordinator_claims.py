"""Test claims after stale reads, and answers that come too late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesumer.model.incidents import IncidentKind
from kinesumer.model.positions import Position
from kinesumer.model.rows import Key, Row
from tests.support.lease_owner import WHOLE, Owner, P, change, own
from tests.support.world import ARN, World


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
