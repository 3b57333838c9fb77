"""Test the trial's picture of the group, and its lines of text."""

from __future__ import annotations

import pytest

from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.status import report
from kinesumer.testing.trial.run import Picture, Plain, View
from tests.support.doctor import member, row, snapshot


def view(seconds: float) -> View:
    fleet = FleetView(snapshot([row(0, "a"), row(1, "")], [member("a"), member("b")]))
    group = report("demo", "table", fleet)
    return View(seconds, 60, "producing", 2000, 1990, 500, [10, 0], group)


def test_plain_lines_come_every_five_seconds_and_events_at_once() -> None:
    lines: list[str] = []
    screen = Plain(lines.append)
    screen.update(view(1.0))
    screen.event(2.0, "kill client-1")
    screen.update(view(3.0))
    screen.update(view(6.0))
    progress = "produced 2,000, processed 1,990 (500/s), behind 10 + 0"
    assert lines == [
        f"   1.0 s    {progress}; a (leader) 1 shards, b 0 shards",
        "   2.0 s  * kill client-1",
        f"   6.0 s    {progress}; a (leader) 1 shards, b 0 shards",
    ]


def test_the_picture_is_that_of_status_with_the_progress_and_events(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = Picture()
    screen.update(view(1.0))
    screen.event(2.0, "kill client-1")
    screen.close()
    text = capsys.readouterr().out
    for words in ("of 60 s, producing", "app demo", "██████████", "kill client-1"):
        assert words in text
    assert "shardId-1 is unowned" in " ".join(text.split())
