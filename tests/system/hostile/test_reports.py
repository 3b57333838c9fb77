"""Rows that can't be read are told of: at once, now and then, and not without end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.errors import CorruptRowError
from kinesumer.runtime.failure_log import (
    CORRUPT_ROW_LOG_SECONDS,
    MAX_CORRUPT_ROWS,
    FailureLog,
)
from kinesumer.telemetry.api import Telemetry
from kinesumer.telemetry.names import CORRUPT_ROWS
from tests.support.world import World, in_virtual_time

if TYPE_CHECKING:
    import pytest


class Counting(Telemetry):
    """Counts corrupt rows."""

    def __init__(self) -> None:
        self.rows = 0

    def count(
        self, counter: str, stream_arn: str = "", amount: int = 1, *, service: str = ""
    ) -> None:
        self.rows += amount if counter == CORRUPT_ROWS else 0


@in_virtual_time
async def test_a_row_is_counted_each_time_and_logged_now_and_then(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = Counting()
    log = FailureLog(world.clock, telemetry)
    for _ in range(3):
        for _ in range(5):
            log.record_corrupt_row(CorruptRowError("row a"))
            log.record_corrupt_row(CorruptRowError("row b"))
        await asyncio.sleep(CORRUPT_ROW_LOG_SECONDS)
    assert telemetry.rows == 30
    messages = [r.message for r in caplog.records if r.levelname == "ERROR"]
    assert messages == 3 * ["row a", "row b"]


@in_virtual_time
async def test_what_is_remembered_of_broken_rows_is_bounded(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    log = FailureLog(world.clock)
    for number in range(3 * MAX_CORRUPT_ROWS):
        log.record_corrupt_row(CorruptRowError(f"row {number}"))
    assert len(log._corrupt) <= MAX_CORRUPT_ROWS
    assert len(caplog.records) == 3 * MAX_CORRUPT_ROWS
