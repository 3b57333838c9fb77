"""Test when a shard that isn't isolated has passed the records that may kill."""

from __future__ import annotations

import pytest

from kinesumer.consuming.suspects import Suspects, Turn
from kinesumer.model.positions import Position
from kinesumer.model.rows import Deaths, ShardRow
from kinesumer.model.streams import ShardKey, Start
from kinesumer.wire.shard_writes import DEATHS

COMMIT_INTERVAL_SECONDS = 5.0


def suspects_after(deaths: int) -> Suspects:
    async def note(_position: Position | None, _number: int) -> None:
        pass

    row = ShardRow(ShardKey("arn", "s1"), 0, 9, Start.TRIM_HORIZON, ready=True)
    return Suspects(
        row._replace(deaths=Deaths(deaths, 7.0)),
        100,
        note,
        Turn(),
        lambda: False,
        acks_late=False,
        commit_interval_seconds=COMMIT_INTERVAL_SECONDS,
    )


def test_progress_for_two_commit_intervals_passes_the_suspects() -> None:
    suspects = suspects_after(2)
    # The first records arrive late, since the reads begin late.
    assert suspects.forgotten(0, 100.0, has_progress=False) == ()
    assert suspects.forgotten(1, 200.0, has_progress=True) == ()
    assert suspects.forgotten(2, 209.9, has_progress=True) == ()
    assert suspects.forgotten(2, 210.0, has_progress=False) == ()
    assert suspects.forgotten(3, 210.0, has_progress=True) == DEATHS


@pytest.mark.parametrize("at", [200.0, 900.0])
def test_an_isolated_shard_must_pass_each_suspect(at: float) -> None:
    suspects = suspects_after(3)
    suspects.forgotten(1, 100.0, has_progress=True)
    assert suspects.forgotten(2, at, has_progress=True) == ()
    suspects.end(3)
    assert suspects.forgotten(3, at, has_progress=True) == DEATHS
