"""Operators change what real processes do while records flow."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

from tests.system.process.scenarios import scenario

if TYPE_CHECKING:
    from tests.system.process.fleet import Fleet


def order(fleet: Fleet, *command: str) -> None:
    """Run a command as an operator does, and wait until clients have done it."""
    at = ("--app", fleet.app, "--table", fleet.table, "--region=us-east-1")
    done = subprocess.run(
        [sys.executable, "-m", "kinesumer.cli", *command, *at],
        env=fleet.environment({}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr, fleet.report())


@scenario
def test_pauses_and_drains_under_load_repeat_nothing(fleet: Fleet) -> None:
    arn = fleet.stream("orders", 4)
    fleet.started("a", "b")
    fleet.produce(200)
    order(fleet, "drain", "b")
    assert fleet.owned("b") == set()
    order(fleet, "pause", "--stream", arn, "--reason", "trial")
    before = len(fleet.handled())
    fleet.pause(2)
    assert len(fleet.handled()) == before
    order(fleet, "drain", "b", "--undo")
    order(fleet, "resume", "--stream", arn)
    fleet.settle("a", "b")
    assert fleet.owned("b")
    fleet.drain()
    fleet.leave()

    assert fleet.verdict().duplicates == 0


@scenario
def test_a_seek_to_the_beginning_under_load_delivers_all_once_more(
    fleet: Fleet,
) -> None:
    arn = fleet.stream("orders", 4)
    fleet.started("a", "b")
    fleet.produce(100)
    fleet.pause(2)
    fleet.drain()
    before = set(times(fleet))
    fleet.produce(100)
    fleet.pause(0.5)
    order(fleet, "seek", "--stream", arn, "--to", "TRIM_HORIZON", "--yes")
    fleet.until(lambda: all(times(fleet)[n] == 2 for n in before), "all comes again")
    fleet.pause(1)
    fleet.drain()
    fleet.leave()

    assert all(times(fleet)[n] == 2 for n in before)
    assert set(times(fleet).values()) == {1, 2}
    assert times(fleet)[max(times(fleet))] == 1


def times(fleet: Fleet) -> Counter[int]:
    """Return how often each record was handled."""
    return Counter(h.number for h in fleet.handled())
