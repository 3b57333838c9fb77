"""A real machine's clock counts the time in which the machine slept."""

from __future__ import annotations

import time

import pytest

from kinesumer.runtime.clock import SystemClock


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="not on this system")
def test_time_in_suspend_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {time.CLOCK_BOOTTIME: 600.0}
    monkeypatch.setattr(time, "clock_gettime", times.__getitem__)
    assert SystemClock().now() == 600.0


def test_elsewhere_it_is_the_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    monkeypatch.setattr(time, "monotonic", lambda: 60.0)
    assert SystemClock().now() == 60.0
