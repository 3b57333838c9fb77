"""Test verdicts on positions, and contradictions between rows and listings."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import HASH_KEYS, Shard
from kinesumer.ops.group import verify
from kinesumer.ops.group.problems import Severity
from kinesumer.ops.group.verify import Peek, contradictions, decide_verdict
from tests.support.doctor import BOUNDS, HALF, row

AT = Position("500")
HERE = Peek(first="500")


@pytest.mark.parametrize(
    ("position", "peek", "oldest", "expected"),
    [
        (AT, HERE, None, verify.THERE),
        (Position("500", 2), HERE._replace(user_records=3), None, verify.THERE),
        (Position("500", 3), HERE._replace(user_records=3), None, verify.PARTS),
        (Position("500", 0), HERE, None, verify.PARTS),
        (AT, Peek(verify.GONE), None, verify.GONE),
        (AT, Peek(verify.FOREIGN), None, verify.FOREIGN),
        (AT, Peek(verify.EXPIRED), None, verify.EXPIRED),
        # The record is missing, and only later ones are left: it has expired.
        (AT, Peek(first="501"), "501", verify.EXPIRED),
        # The record is missing, but earlier ones are left: it can't have expired.
        (AT, Peek(first="501"), "99", verify.UNKNOWN),
        (AT, Peek(), "99", verify.BEYOND),
        (AT, Peek(), None, verify.QUIET),
        # Record 501 arrived after the first of the two reads.
        (AT, Peek(), "501", verify.QUIET),
    ],
)
def test_each_verdict(
    position: Position, peek: Peek, oldest: str | None, expected: verify.Verdict
) -> None:
    assert decide_verdict(position, peek, oldest) == expected


LISTING = [Shard(f"shardId-{number}", *BOUNDS[number]) for number in (0, 1)]
WITH_CHILDREN = [
    Shard("shardId-0", 0, HALF - 1, (), "9"),
    Shard("shardId-1", HALF, HASH_KEYS - 1, ("shardId-0",)),
]


PARENT_0 = frozenset({"shardId-0"})
CHILD = row(1, parents=PARENT_0, ready=False)
ENDED = row(0, ended=True)
WHOLE = row(0)._replace(last_hash=HASH_KEYS - 1)
CHILDREN = [Shard(f"shardId-{n}", *BOUNDS[n - 1], ("shardId-0",)) for n in (1, 2)]
SPLIT = [Shard("shardId-0", 0, HASH_KEYS - 1, (), "9"), *CHILDREN]


@pytest.mark.parametrize(
    ("rows", "listing", "expected"),
    [
        ([row(0), row(1)], LISTING, []),
        ([], LISTING[:1], []),
        (
            [row(0)._replace(last_hash=5), row(1)],
            LISTING,
            ["shardId-0 its row has other hash keys"],
        ),
        ([ENDED, row(1)], WITH_CHILDREN, ["shardId-1 its row lacks its parent"]),
        ([ENDED, row(1)], LISTING, ["shardId-0 its row says that it is read to its"]),
        # While a parent is read, its child hasn't begun.
        ([row(0), CHILD], WITH_CHILDREN, []),
        (
            [row(0), CHILD._replace(position=Position("1"))],
            WITH_CHILDREN,
            ["shardId-1 has begun, but its parent shardId-0"],
        ),
        # If a parent has neither a row nor a listing entry, clients have read it.
        ([row(1, parents=PARENT_0)], WITH_CHILDREN[1:], []),
        ([row(0)], LISTING, ["shardId-1 has no row"]),
        # While clients still read the parent, its children need no rows.
        ([WHOLE], SPLIT, []),
        (
            [WHOLE._replace(ended=True)],
            SPLIT,
            ["shardId-1 has no row", "shardId-2 has no row"],
        ),
    ],
)
def test_contradictions(
    rows: Sequence[ShardRow], listing: Sequence[Shard], expected: list[str]
) -> None:
    problems = list(contradictions(rows, listing))
    texts = [f"{problem.shard_id} {problem.text}" for problem in problems]
    assert len(texts) == len(expected)
    for problem, text, start in zip(problems, texts, expected, strict=True):
        assert text.startswith(start)
        is_missing = "has no row" in text
        severity = Severity.WARNING if is_missing else Severity.CRITICAL
        assert problem.severity == severity.label
