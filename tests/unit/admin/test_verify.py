"""Verdicts on positions, and contradictions between rows and listings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.admin.doctor.finding import Severity
from kinesumer.admin.verify import contradictions
from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS, Shard
from tests.support.doctor import BOUNDS, HALF, row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.model.rows import ShardRow


import pytest

from kinesumer.admin import verify
from kinesumer.admin.sampling import Peek, Presence
from kinesumer.admin.verify import decide_verdict

AT = Position("500")
HERE = Peek(Presence.THERE, None, "500")


@pytest.mark.parametrize(
    ("position", "seen", "oldest", "expected"),
    [
        (AT, HERE, None, verify.THERE),
        (Position("500", 2), HERE._replace(user_records=3), None, verify.THERE),
        (Position("500", 3), HERE._replace(user_records=3), None, verify.PARTS),
        (Position("500", 0), HERE, None, verify.PARTS),
        (AT, Peek(Presence.GONE), None, verify.GONE),
        (AT, Peek(Presence.FOREIGN), None, verify.FOREIGN),
        (AT, Peek(Presence.EXPIRED), None, verify.EXPIRED),
        # Its record isn't there, but later ones are, and none before it …
        (AT, Peek(Presence.THERE, None, "501"), "501", verify.EXPIRED),
        # … or some before it, so that retention can't be why.
        (AT, Peek(Presence.THERE, None, "501"), "99", verify.UNKNOWN),
        (AT, Peek(Presence.THERE), "99", verify.BEYOND),
        (AT, Peek(Presence.THERE), None, verify.QUIET),
        # What arrived between the two looks.
        (AT, Peek(Presence.THERE), "501", verify.QUIET),
    ],
)
def test_each_verdict(
    position: Position, seen: Peek, oldest: str | None, expected: verify.Verdict
) -> None:
    assert decide_verdict(position, seen, oldest) == expected


LISTING = [Shard(f"shardId-{number}", *BOUNDS[number]) for number in (0, 1)]
WITH_CHILDREN = [
    Shard("shardId-0", 0, HALF - 1, (), True),
    Shard("shardId-1", HALF, HASH_KEYS - 1, ("shardId-0",)),
]


def texts(rows: Sequence[ShardRow], listing: Sequence[Shard]) -> list[str]:
    return [f"{p.shard_id} {p.text}" for p in contradictions(rows, listing)]


def test_rows_that_agree_with_their_shards_are_right() -> None:
    assert texts([row(0), row(1)], LISTING) == []
    assert texts([], LISTING[:1]) == []


def test_other_hash_keys_are_reported() -> None:
    [text] = texts([row(0)._replace(last_hash=5), row(1)], LISTING)
    assert text.startswith("shardId-0 its row has other hash keys")


def test_a_parent_that_a_row_lacks_is_reported() -> None:
    [text] = texts([row(0, ended=True), row(1)], WITH_CHILDREN)
    assert "lacks its parent shardId-0" in text


def test_an_end_of_a_shard_that_is_open_is_reported() -> None:
    [text] = texts([row(0, ended=True), row(1)], LISTING)
    assert "shardId-0 its row says that it is read to its end, but it is open" in text


def test_a_child_that_began_before_its_parent_ended_is_reported() -> None:
    child = row(1, parents=frozenset({"shardId-0"}), ready=False)
    assert texts([row(0), child], WITH_CHILDREN) == []
    early = child._replace(position=Position("1"))
    [text] = texts([row(0), early], WITH_CHILDREN)
    assert "shardId-1 has begun, but its parent shardId-0" in text


def test_a_parent_whose_row_is_gone_was_read() -> None:
    child = row(1, parents=frozenset({"shardId-0"}))
    assert texts([child], WITH_CHILDREN[1:]) == []


def test_a_shard_without_a_row_is_a_warning() -> None:
    [problem] = contradictions([row(0)], LISTING)
    assert problem.severity is Severity.WARNING
    assert (problem.shard_id, problem.text[:10]) == ("shardId-1", "has no row")


def test_children_of_what_is_still_read_need_no_row_yet() -> None:
    children = [Shard(f"shardId-{n}", *BOUNDS[n - 1], ("shardId-0",)) for n in (1, 2)]
    listing = [Shard("shardId-0", 0, HASH_KEYS - 1, (), True), *children]
    whole = row(0)._replace(last_hash=HASH_KEYS - 1)
    assert texts([whole], listing) == []
    told = texts([whole._replace(ended=True)], listing)
    assert [text[:20] for text in told] == [
        "shardId-1 has no row",
        "shardId-2 has no row",
    ]
