"""Test that the commands show a handler that fails on every record."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kinesumer.testing import EmbeddedAws
from tests.integration.ops.cli.conftest import Run, aws, environment, report, run

__all__ = ["aws", "environment", "run"]

PROGRAM = """
import asyncio
from kinesumer import Kinesumer, Record, RetryPolicy, Start

class PaymentError(Exception):
    pass

async def handle(record: Record):
    raise PaymentError("a secret")

async def main():
    async with Kinesumer("a", client_id="one") as client:
        await client.run(
            "orders", handle, start=Start.TRIM_HORIZON, dead_letters="file:letters",
            retries=RetryPolicy(max_attempts=1),
        )

asyncio.run(main())
"""
READY_SECONDS = 60.0


def statuses(run: Run) -> Iterator[Any]:
    """Yield reports of ``status`` once the app has rows, until the time is over."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        result = run("status", "--app=a", "--json")
        if result.exit_code == 0:
            yield report(result)
        time.sleep(0.5)


def test_every_report_shows_a_handler_that_fails_on_every_record(
    aws: EmbeddedAws, run: Run, tmp_path: Path
) -> None:
    aws.create_table()
    aws.create_stream("orders")
    for number in range(50):
        aws.put("orders", b"a secret", f"{number}")
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            found = next(
                failures
                for status in statuses(run)
                for stream in status["streams"]
                if (failures := stream["failures"]) and failures["dead_letters"] == 50
            )
            assert (found["calls"], found["failed_calls"]) == (50, 50)
            assert found["clients"] == ["one"]
            assert found["last_error"]["type"] == "PaymentError"
            text = run("status", "--app=a").output
            assert "100 % of 50 calls fail, 50 dead letters" in " ".join(text.split())
            doctor = run("doctor", "--app=a", "--json", "--interval=1")
            shown = report(doctor, 4)["findings"]
            assert "failures" in [finding["check"] for finding in shown]
            metrics = run("metrics", "--app=a", "--once").output
            assert "kinesumer_group_dead_letters{" in metrics
            assert not any("secret" in one for one in (text, doctor.output, metrics))
        finally:
            process.kill()
