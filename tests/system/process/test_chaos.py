"""Runs a short chaos. ``python -m tests.system.chaos`` runs a long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.chaos.backends import backend
from tests.system.chaos.campaign import Campaign, Plan

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_whatever_happens_every_promise_is_kept(tmp_path: Path) -> None:
    said: list[str] = []
    plan = Plan(minutes=0.66, clients=4, streams=3, seed=1)
    with backend("embedded", None, plan.seed) as place:
        found = Campaign(plan, place, tmp_path, said.append).run()
    print(found.text())
    # Durations aren't checked, because other tests may load the machine.
    assert not found.faults(of_time=False), "\n".join([*said, found.text()])
