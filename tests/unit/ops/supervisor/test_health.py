"""Test what a process knows of its client's health, without a request to AWS."""

from __future__ import annotations

from kinesumer import Kinesumer, blocking
from kinesumer.ops.group.observation import ClientHealth
from kinesumer.ops.supervisor.health import STARTING, read_health
from tests.support.clients import Thinking
from tests.support.faulty import FaultyStore
from tests.support.world import Client, World


def health(client: Client) -> ClientHealth:
    return read_health(client.client)


def test_a_client_that_has_not_begun_is_alive_and_not_ready() -> None:
    assert read_health(Kinesumer("billing")) == STARTING
    assert read_health(blocking.Kinesumer("billing")) == STARTING


async def test_a_client_is_ready_with_its_part_of_the_plan(world: World) -> None:
    client = world.client("c1")
    assert health(client) == STARTING
    await world.until(lambda: health(client).ready)
    assert health(client) == (
        True,
        True,
        "up",
        "its heartbeat advances, and it has its part of the plan",
    )


async def test_a_client_that_leaves_is_alive_and_not_ready(world: World) -> None:
    clients = [world.client(name) for name in ("c1", "c2")]
    await world.until(lambda: all(health(client).ready for client in clients))
    leaving = clients[1].run(clients[1].client.leave())
    await world.until(lambda: health(clients[1]).state == "leaving")
    assert health(clients[1])[:2] == (True, False)
    await leaving


async def test_a_client_whose_user_code_hangs_is_dead(world: World) -> None:
    world.put("a")
    client = world.client("c1", handle=Thinking(1e9), max_processing_seconds=60)
    await world.until(lambda: client.seen)
    assert health(client).alive
    await world.until(lambda: not health(client).alive, seconds=90)
    assert health(client) == (
        False,
        False,
        "dead",
        "user code makes no progress, so its shards go to other clients",
    )


async def test_nobody_knows_of_a_client_while_the_state_store_is_down(
    world: World,
) -> None:
    store = FaultyStore(world.table)
    client = world.client("c1", store=store)
    await world.until(lambda: health(client).ready)
    store.down = True
    await world.until(lambda: not health(client).ready)
    assert health(client) == (
        None,
        False,
        None,
        "the state store didn't answer in time",
    )
    store.down = False
    await world.until(lambda: health(client).ready)
