"""Test what a client logs about its incidents."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.model.incidents import IncidentKind
from kinesumer.runtime.incidents import IncidentLog
from tests.support.world import World

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
CLAIMS, CREDENTIALS = IncidentKind.REPEATED_CLAIM, IncidentKind.CREDENTIALS


async def test_an_incident_is_logged_once_with_its_meaning_and_remedy(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    log = IncidentLog(world.clock)
    for _ in range(10):
        log.note(CLAIMS, stream_arn=ARN, shard_id="shardId-1", error="not a position")
        await asyncio.sleep(1)
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage() == (
        f"shard shardId-1 of stream orders: {CLAIMS.meaning} {CLAIMS.remedy} "
        "Last error: not a position"
    )
    fields = [record.__dict__[name] for name in ("incident", "stream", "shard_id")]
    assert fields == ["repeated-claim", "orders", "shardId-1"]
    [incident] = log.current()
    assert incident.count == 10


async def test_a_resolved_incident_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    log = IncidentLog(world.clock)
    log.resolve(CREDENTIALS)
    log.note(CREDENTIALS)
    await asyncio.sleep(90)
    assert len(log.current()) == 1
    log.resolve(CREDENTIALS)
    assert log.current() == []
    begin, end = caplog.records
    assert begin.getMessage().startswith("the client itself: The client can't renew")
    text = "the client itself: the incident 'credentials' is over after 90 s"
    assert end.getMessage() == text


async def test_an_incident_that_is_not_noted_any_more_ends_by_itself(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    log = IncidentLog(world.clock)
    for _ in range(3):
        log.note(CLAIMS, stream_arn=ARN, shard_id="shardId-1")
    await asyncio.sleep(61)
    assert log.current() == []
    assert "the incident 'repeated-claim' is over after 61 s" in caplog.text
