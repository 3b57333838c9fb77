"""How long the event loop runs after user code has held it up."""

from __future__ import annotations

import pytest

from kinesumer.core.loop_share import yield_seconds


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (0.0, 0.0),
        (0.05, 0.0),
        (0.25, 0.0),
        (0.26, 0.013),
        (1.0, 0.05),
        (4.0, 0.2),
        (5.0, 0.25),
        (6.0, 0.25),
        (3600.0, 0.25),
    ],
)
def test_a_twentieth_of_a_long_hold_at_most_a_quarter_of_a_second(
    held: float, expected: float
) -> None:
    assert yield_seconds(held) == pytest.approx(expected)
