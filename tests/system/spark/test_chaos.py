"""Test a query in a short chaos run.

``python -m tests.system.spark.chaos`` starts a long run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.spark.chaos import Chaos, Plan

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_every_row_is_there_exactly_once_whatever_is_killed(tmp_path: Path) -> None:
    said: list[str] = []
    plan = Plan(restarts=1, seed=163)
    assert Chaos(plan, tmp_path, said.append).run() == [], "\n".join(said)
