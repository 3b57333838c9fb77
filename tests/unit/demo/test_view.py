"""What the demo shows while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesumer.demo.screen import Picture
from kinesumer.demo.view import ClientView, Plain, StreamView, View, band
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start

if TYPE_CHECKING:
    import pytest

QUARTER = HASH_KEYS // 4


def shard(number: int, first: int, last: int, owner: str, **more: Any) -> ShardRow:
    fields: dict[str, Any] = {"ready": True, "owner_id": owner, **more}
    return ShardRow(
        ShardKey("arn:orders", f"shardId-{number}"),
        first * QUARTER,
        (last + 1) * QUARTER - 1,
        Start.TRIM_HORIZON,
        **fields,
    )


def view(seconds: float) -> View:
    shards = [shard(0, 0, 1, "client-1"), shard(1, 2, 3, "")]
    return View(
        seconds=seconds,
        of_seconds=60,
        phase="producing",
        produced=2000,
        processed=1990,
        per_second=500,
        streams=[StreamView("orders", shards, 10, 0.5)],
        clients=[ClientView("client-1", "running", 0, True, 1, 500.0)],
    )


def test_a_band_shows_who_owns_which_part() -> None:
    shards = [shard(0, 0, 1, "a"), shard(1, 2, 2, "b"), shard(2, 3, 3, "")]
    assert band(shards, 8) == ["a"] * 4 + ["b"] * 2 + [""] * 2


def test_a_parent_that_is_still_read_hides_its_children() -> None:
    children = [
        shard(n, n - 1, n - 1, "", ready=False, parents=frozenset({"shardId-0"}))
        for n in (1, 2)
    ]
    assert band([shard(0, 0, 1, "a"), *children], 4) == ["a", "a", "", ""]


def test_children_replace_a_parent_that_has_ended() -> None:
    child = shard(1, 0, 1, "b", parents=frozenset({"shardId-0"}))
    assert band([shard(0, 0, 1, "a", ended=True), child], 4) == ["b", "b", "", ""]


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
        "10 behind",
        "client-1",
        "running (leader)",
        "kill client-1",
    ):
        assert word in text
