"""Test what a session tells of its shards, and which part of the work it has."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.model.rows import ISOLATING_DEATHS, Deaths
from tests.support.clients import Thinking, numbers, sharing, spread
from tests.support.world import ARN, World


async def test_each_session_counts_its_shards_and_the_leader_all(world: World) -> None:
    clients = await sharing(world, "c1", "c2", shards=4)
    await asyncio.sleep(5)
    assert sorted(client.leads for client in clients) == [False, True]
    for client in clients:
        state = client.group.read_gauges()
        [stream] = state.streams
        seen = (state.num_workers, stream.total_leases)
        assert seen == ((2, 4) if client.leads else (None, None))
        assert (stream.current_leases, stream.leases_to_take) == (2, 0)
        assert client.group.commit_share(ARN) == 0.5


async def test_work_and_the_clients_that_it_needs_are_measured(world: World) -> None:
    world.kinesis.create_stream("orders", 4)
    client = world.client("c1", handle=Thinking(0.01))
    spread(world, *numbers(0, 4000))
    await asyncio.sleep(20)
    state = client.group.read_gauges()
    # One loop handles the records of all shards, one after the other.
    assert state.work == pytest.approx(1.0, rel=0.1)
    assert state.clients_wanted == 2


async def test_shards_that_are_read_in_isolation_are_counted(world: World) -> None:
    [client] = await sharing(world, "c1", shards=4)
    owned = next(iter(client.group.owned_shards()))
    owned.row = owned.row._replace(deaths=Deaths(ISOLATING_DEATHS))
    assert client.group.read_gauges().streams[0].isolated_leases == 1


async def test_the_leader_syncs_all_streams_and_others_those_of_their_plan(
    world: World,
) -> None:
    clients = await sharing(world, "c1", "c2", shards=4)
    for client in clients:
        session = client.group.session
        assert session is not None
        assert session.streams_to_sync(frozenset({ARN})) == (
            {ARN} if client.leads else set()
        )
        session.member = session.member._replace(syncs=frozenset({ARN, "other"}))
        assert session.streams_to_sync(frozenset({ARN})) == {ARN}
