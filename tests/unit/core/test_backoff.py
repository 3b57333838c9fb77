"""Test the waits between retries."""

from __future__ import annotations

import pytest

from kinesumer.core.backoff import Backoff


@pytest.mark.parametrize(
    ("failures", "longest"),
    [(1, 0.5), (2, 1.0), (3, 2.0), (5, 8.0), (6, 10.0), (5000, 10.0)],
)
def test_waits_double_up_to_the_maximum(failures: int, longest: float) -> None:
    backoff = Backoff(0.5, 10.0)
    assert backoff.wait_seconds(failures, jitter=1.0) == longest
    assert backoff.wait_seconds(failures, jitter=0.0) == longest / 2
