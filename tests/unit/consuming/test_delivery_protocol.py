"""Test that the parts of a client carry out what a delivery decides."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kinesumer.consuming.delivery_protocol import EngineParts
from kinesumer.consuming.prefetch import PrefetchBuffer
from kinesumer.core.delivery import Free, Processed, Signal, Unfinished
from tests.support.delivery import CountingTelemetry
from tests.support.world import World, hold


async def test_each_effect_reaches_its_part(world: World) -> None:
    buffer, telemetry, requests = PrefetchBuffer(100), CountingTelemetry(), list[str]()
    waiting, owned = world.loop.create_task(buffer.get()), hold()
    await asyncio.sleep(0)
    buffer.used = 10
    EngineParts(buffer, lambda: requests.append("commit"), telemetry).carry_out(
        [Free(owned, 7), Processed(owned, 2, 60), Signal.COMMIT, Signal.WAKE]
    )
    assert buffer.used == 3
    assert telemetry.counted == {"consumed_messages": 2, "data_bytes_processed": 60}
    assert requests == ["commit"]
    assert await waiting is None


@pytest.mark.parametrize(
    ("error", "level", "said"),
    [
        (ValueError("broken"), logging.WARNING, "ValueError('broken')"),
        (asyncio.CancelledError(), logging.INFO, "cancelled"),
    ],
)
def test_records_in_hand_of_an_ended_task_are_logged(
    error: BaseException, level: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    parts = EngineParts(PrefetchBuffer(100), lambda: None, CountingTelemetry())
    parts.carry_out([Unfinished(hold(), 2, "they are delivered again", error)])
    [record] = caplog.records
    assert record.levelno == level
    assert record.message.endswith(
        f" a task ended ({said}) with 2 records in hand that aren't done: they are "
        "delivered again"
    )
