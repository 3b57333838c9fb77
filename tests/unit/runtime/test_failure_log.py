"""Test what a client logs about failures and incidents."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.core.failures import MAX_SUBJECTS
from kinesumer.errors import (
    CorruptRowError,
    ShardThrottledError,
    SourceUnavailableError,
    StoreUnavailableError,
)
from kinesumer.model.incidents import IncidentKind
from kinesumer.runtime.failure_log import (
    LOG_REPEAT_SECONDS,
    RECOVERY_SECONDS,
    THROTTLE_RECOVERY_SECONDS,
    FailureLog,
    IncidentLog,
    RepeatedLines,
)
from kinesumer.telemetry.api import Telemetry
from tests.support.world import World


async def test_changes_of_state_are_logged_once_each(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    log, error = FailureLog(world.clock), StoreUnavailableError("timed out")
    log.record_success("state store")
    for _ in range(100):
        log.record_failure("state store", error)
        await asyncio.sleep(0.1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "state store fails, trying again: timed out" in caplog.text
    await asyncio.sleep(RECOVERY_SECONDS)
    for _ in range(100):
        log.record_success("state store")
    assert len(caplog.records) == 2
    assert "state store works again, after failing for 9.9 s" in caplog.text


async def test_a_success_between_failures_or_of_another_object_is_not_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    log, error = FailureLog(world.clock), StoreUnavailableError("timed out")
    for _ in range(100):
        log.record_failure("state store", error)
        await asyncio.sleep(1)
        log.record_success("state store")
    log.record_failure("stream orders", SourceUnavailableError("timed out"))
    log.record_success("stream payments")
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


async def test_throttling_is_logged_when_it_begins_and_when_it_ends(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    log, error = FailureLog(world.clock), ShardThrottledError("GetRecords on orders")
    log.record_read("orders")
    for _ in range(10):
        log.record_throttled_read("orders", error)
        await asyncio.sleep(THROTTLE_RECOVERY_SECONDS / 2)
        log.record_read("orders")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.records[0].message == (
        "Kinesis throttles 'orders' (five reads per second and shard, shared by all "
        "apps): reading it more slowly; GetRecords on orders"
    )
    await asyncio.sleep(THROTTLE_RECOVERY_SECONDS / 2)
    for _ in range(10):
        log.record_read("orders")
    assert len(caplog.records) == 2
    assert "Kinesis no longer throttles 'orders', after 1350.0 s" in caplog.text


class Counting(Telemetry):
    """Telemetry that counts corrupt rows."""

    def __init__(self) -> None:
        self.rows = 0

    def count(
        self, name: str, stream_arn: str = "", amount: int = 1, **details: str
    ) -> None:
        self.rows += amount if name == "corrupt_rows" else 0


async def test_a_corrupt_row_is_counted_each_time_and_logged_at_intervals(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = Counting()
    log = FailureLog(world.clock, telemetry)
    for _ in range(3):
        for _ in range(5):
            log.record_corrupt_row(CorruptRowError("row a"))
            log.record_corrupt_row(CorruptRowError("row b"))
        await asyncio.sleep(LOG_REPEAT_SECONDS)
    assert telemetry.rows == 30
    messages = [r.message for r in caplog.records if r.levelname == "ERROR"]
    assert messages == 3 * ["row a", "row b"]


async def test_the_memory_of_corrupt_rows_is_bounded(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    log = FailureLog(world.clock)
    for number in range(3 * MAX_SUBJECTS):
        log.record_corrupt_row(CorruptRowError(f"row {number}"))
    assert len(log._corrupt._lines) <= MAX_SUBJECTS
    assert len(caplog.records) == 3 * MAX_SUBJECTS


def test_a_line_counts_those_that_it_stands_for_unless_it_is_new() -> None:
    lines = RepeatedLines()
    assert lines.left_out("orders", 0.0) == 0
    assert lines.left_out("orders", 1.0) is None
    assert lines.left_out("orders", 2.0, is_new=True) == 1
    assert lines.left_out("orders", LOG_REPEAT_SECONDS + 1) is None
    assert lines.left_out("payments", LOG_REPEAT_SECONDS + 1) == 0
    assert lines.left_out("orders", LOG_REPEAT_SECONDS + 2) == 1


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
