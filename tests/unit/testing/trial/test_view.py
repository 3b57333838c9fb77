"""Test the demo's picture of the group, and its lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import ShardKey, Start
from kinesumer.testing.trial.view import (
    ClientView,
    Picture,
    Plain,
    StreamView,
    View,
    count_owners,
)

if TYPE_CHECKING:
    import pytest


def view(seconds: float) -> View:
    return View(
        seconds=seconds,
        of_seconds=60,
        phase="producing",
        produced=2000,
        processed=1990,
        per_second=500,
        streams=[StreamView("orders", {"client-1": 1, "": 2}, 10, 0.5)],
        clients=[ClientView("client-1", "running", 0, True, 1, 500.0)],
    )


def test_owners_of_open_shards_are_counted() -> None:
    rows = [
        ShardRow(ShardKey("arn", f"shardId-{n}"), 0, 1, Start.LATEST, owner_id=owner)
        for n, owner in enumerate(["a", "a", "", "b"])
    ]
    rows[3] = rows[3]._replace(ended=True)
    assert count_owners(rows) == {"a": 2, "": 1}


def test_plain_lines_come_every_five_seconds_and_events_at_once() -> None:
    lines: list[str] = []
    screen = Plain(lines.append)
    screen.update(view(1.0))
    screen.event(2.0, "kill client-1")
    screen.update(view(3.0))
    screen.update(view(6.0))
    assert lines == [
        "   1.0 s    produced 2,000, processed 1,990, behind 10; "
        "client-1 (leader) 1 shards 500/s",
        "   2.0 s  * kill client-1",
        "   6.0 s    produced 2,000, processed 1,990, behind 10; "
        "client-1 (leader) 1 shards 500/s",
    ]


def test_the_picture_has_streams_clients_and_events(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = Picture()
    screen.update(view(1.0))
    screen.event(2.0, "kill client-1")
    screen.close()
    text = capsys.readouterr().out
    for word in (
        "orders",
        "unassigned 2, client-1 1",
        "running (leader)",
        "kill client-1",
    ):
        assert word in text
