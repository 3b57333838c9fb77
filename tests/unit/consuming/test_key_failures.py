"""Test how a stream whose key can't be used is read."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from kinesumer.errors import (
    KeyThrottledError,
    KeyUnavailableError,
)
from kinesumer.model.incidents import IncidentKind
from tests.support.delivery import ReaderDesk
from tests.support.world import World


async def test_reads_without_a_usable_key_become_slow_and_are_an_incident(
    world: World,
) -> None:
    world.put("a")
    desk = ReaderDesk(world)
    disabled = KeyUnavailableError("KMSDisabledException")
    desk.source.errors.extend(disabled for _ in range(20))
    desk.start()
    await asyncio.sleep(200)
    [incident] = desk.incidents.current()
    assert (incident.kind, incident.shard_id) == (IncidentKind.KMS, "")
    assert incident.error == "KMSDisabledException"
    gaps = [after - before for before, after in pairwise(desk.source.reads)]
    assert gaps[0] <= 1.0
    assert 15.0 <= min(gaps[6:]) and max(gaps) <= 30.0
    assert desk.stream.failing is None  # so the client isn't degraded
    assert await desk.read(1, seconds=400) == ["a"]
    assert desk.incidents.current() == []


async def test_one_throttled_use_of_a_key_is_no_incident(world: World) -> None:
    world.put("a")
    desk = ReaderDesk(world)
    desk.source.errors.append(KeyThrottledError("KMSThrottlingException"))
    desk.start()
    await asyncio.sleep(0.4)
    assert desk.incidents.current() == []
    assert await desk.read(1, seconds=2) == ["a"]
