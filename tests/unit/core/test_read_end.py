"""Test where reading ends that goes on only until a time."""

from __future__ import annotations

import math

import pytest

from kinesumer.core.read_end import is_read_until, records_before
from kinesumer.model.positions import BEFORE_ALL, Position, Tip
from kinesumer.model.records import Page, Record
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import ShardKey, Start

UNTIL = 1000.0


def page(*times: float | None) -> Page:
    records = [
        Record(
            data=b"",
            partition_key="key",
            sequence_number=str(number),
            approximate_arrival_timestamp=time,
        )
        for number, time in enumerate(times)
    ]
    return Page(records, "next", 0)


def row(name: str, *parents: str, tip: float = 0, ended: bool = False) -> ShardRow:
    return ShardRow(
        ShardKey("arn", name),
        0,
        1,
        Start.LATEST,
        parents=frozenset(parents),
        position=Position("5"),
        tip=Tip(tip, Position("5")),
        ended=ended,
    )


def test_records_that_arrive_at_the_time_or_later_are_left_out() -> None:
    assert records_before(page(999.0, None, 999.9), UNTIL) == 3
    assert records_before(page(999.0, 1000.0, 999.9), UNTIL) == 1
    assert records_before(page(1e9), math.inf) == 1


@pytest.mark.parametrize(
    ("rows", "is_read"),
    [
        ([row("a", tip=1000), row("b", tip=1001)], True),
        ([row("a", tip=1000), row("b", tip=999)], False),
        ([row("a", ended=True), row("b", "a", tip=1000)], True),
        ([row("a", ended=True), row("b", "a")], False),
        # A closed shard with later records: its descendants have only later ones.
        ([row("a", tip=1000), row("b", "a"), row("c", "b")], True),
    ],
)
def test_a_stream_is_read_if_each_shard_is_or_has_only_later_records(
    rows: list[ShardRow], is_read: bool
) -> None:
    assert is_read_until(rows, UNTIL) == is_read


def test_a_shard_without_records_can_be_read_until_a_time_too() -> None:
    empty = row("a")._replace(position=None, tip=Tip(1000, BEFORE_ALL))
    assert is_read_until([empty], UNTIL)
    # An operator has moved the position back to a start.
    assert not is_read_until([row("a", tip=1000)._replace(position=None)], UNTIL)
