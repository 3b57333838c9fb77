"""Changes of what doesn't exist, asked for by the page: refused when foretold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from kinesumer.admin.connect import NO_ROLES
from kinesumer.dashboard.actions import ActionHandler as Changes
from kinesumer.dashboard.actions import Drain, Pause, Resume, Seek
from kinesumer.errors import ConfigurationError
from tests.support.world import APP, World, in_virtual_time

if TYPE_CHECKING:
    from kinesumer.dashboard.actions import Action

SHARD = "shardId-000000000000"
WRONG: list[Action] = [
    Pause(stream=""),
    Pause(stream="payments"),
    Pause(stream="orders", shard=""),
    Pause(stream="orders", shard="shardId-9"),
    Pause(shard=SHARD),
    Resume(stream="\x1b[2J"),
    Resume(stream="orders", shard="x" * 9000),
    Drain(client=""),
    Seek(to="", stream="orders"),
    Seek(to="9" * 5000, stream="orders", shard=SHARD),
    Seek(to="49:" + "9" * 5000, stream="orders", shard=SHARD),
    Seek(to="1969-01-01T00:00:00Z", stream="orders"),
    Seek(to="LATEST", stream="payments"),
]


def desk(world: World) -> Changes:
    return Changes(APP, cast("Any", None), world.table, NO_ROLES)


@pytest.mark.parametrize("change", WRONG, ids=lambda change: str(change)[:40])
@in_virtual_time
async def test_a_change_of_what_there_is_not_is_foretold_to_nobody(
    world: World, change: Action
) -> None:
    client = world.client("c1")
    await world.until(lambda: client.held)
    with pytest.raises(ConfigurationError):
        await desk(world).preview(change)
    with pytest.raises(ConfigurationError):
        await desk(world).apply(change)


@in_virtual_time
async def test_a_stream_called_by_its_name_is_the_stream(world: World) -> None:
    client = world.client("c1")
    await world.until(lambda: client.held)
    first, *_ = (await desk(world).preview(Pause(stream="orders"))).lines
    assert first == "c1 gives up 1 shard of orders"
