"""What is to be said of a position, by what stands there."""

from __future__ import annotations

import pytest

from kinesumer.admin import verify
from kinesumer.admin.sampling import Peek, Presence
from kinesumer.admin.verify import decide_verdict
from kinesumer.model.positions import Position

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
