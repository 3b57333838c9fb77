"""Test that a group of processes reads a table's stream beside a Kinesis stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.tables.run import Plan, run

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(roll_overs=3, spark=False), id="clients"),
        pytest.param(Plan(roll_overs=3), id="with Spark", marks=pytest.mark.spark),
    ],
)
async def test_roll_overs_a_kill_a_join_and_a_leave_lose_and_disorder_nothing(
    plan: Plan, tmp_path: Path
) -> None:
    verdict = await run(plan, tmp_path, print)
    assert verdict.faults(of_time=False) == []
