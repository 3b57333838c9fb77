"""What is to be said of a position, by what stands there."""

from __future__ import annotations

import pytest

from kinesumer.model import Position
from kinesumer.operations.peeking import Found, Peek
from kinesumer.operations.verify import verdict
from kinesumer.operations.verify.verdict import judge

AT = Position("500")
HERE = Peek(Found.THERE, None, "500")


@pytest.mark.parametrize(
    ("position", "seen", "oldest", "expected"),
    [
        (AT, HERE, None, verdict.THERE),
        (Position("500", 2), HERE._replace(parts=3), None, verdict.THERE),
        (Position("500", 3), HERE._replace(parts=3), None, verdict.PARTS),
        (Position("500", 0), HERE, None, verdict.PARTS),
        (AT, Peek(Found.GONE), None, verdict.GONE),
        (AT, Peek(Found.FOREIGN), None, verdict.FOREIGN),
        (AT, Peek(Found.EXPIRED), None, verdict.EXPIRED),
        # Its record isn't there, but later ones are, and none before it …
        (AT, Peek(Found.THERE, None, "501"), "501", verdict.EXPIRED),
        # … or some before it, so that retention can't be why.
        (AT, Peek(Found.THERE, None, "501"), "99", verdict.UNKNOWN),
        (AT, Peek(Found.THERE), "99", verdict.BEYOND),
        (AT, Peek(Found.THERE), None, verdict.QUIET),
        # What arrived between the two looks.
        (AT, Peek(Found.THERE), "501", verdict.QUIET),
    ],
)
def test_each_verdict(
    position: Position, seen: Peek, oldest: str | None, expected: verdict.Verdict
) -> None:
    assert judge(position, seen, oldest) == expected
