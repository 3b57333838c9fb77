"""Test that the dashboard refuses actions on unknown objects, also in the preview."""

from __future__ import annotations

from typing import cast

import pytest

from kinesumer.aws.session import ClientFactory
from kinesumer.errors import ConfigurationError
from kinesumer.ops.dashboard.actions import (
    Action,
    ActionHandler,
    Drain,
    Pause,
    Resume,
    Seek,
)
from kinesumer.ops.group.connect import NO_ROLES
from tests.support.world import APP, World, in_virtual_time

SHARD = "shardId-000000000000"
IMPOSSIBLE: list[Action] = [
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


@in_virtual_time
async def test_only_actions_on_known_objects_have_a_preview_and_an_effect(
    world: World,
) -> None:
    actions = ActionHandler(APP, cast("ClientFactory", None), world.table, NO_ROLES)
    client = world.client("c1")
    await world.until(lambda: client.held)
    before = world.shard_rows()
    for action in IMPOSSIBLE:
        for call in (actions.preview, actions.apply):
            with pytest.raises(ConfigurationError):
                await call(action)
    assert world.shard_rows() == before
    first, *_ = (await actions.preview(Pause(stream="orders"))).lines
    assert first == "c1 gives up 1 shard of orders"
