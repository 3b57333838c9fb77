"""Run a short chaos. ``python -m tests.system.spark.chaos`` runs a long one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.system.spark.chaos import Chaos, Plan

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_every_row_is_there_exactly_once_whatever_is_killed(tmp_path: Path) -> None:
    said: list[str] = []
    plan = Plan(restarts=2, seed=7)
    assert Chaos(plan, tmp_path, said.append).run() == [], "\n".join(said)
