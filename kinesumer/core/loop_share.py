"""How long user code must leave the event loop to other tasks."""

from __future__ import annotations

SHORT_SECONDS = 0.25
"""After a shorter hold a few steps of the loop are enough."""
SHARE = 1 / 20
MAX_YIELD_SECONDS = 0.25


def yield_seconds(held_seconds: float) -> float:
    """Return how long to yield after user code has held the event loop.

    In that time the loop handles the answers that have arrived from Kinesis and the
    state store, and sends the next requests. Return 0 after a short hold.
    """
    if held_seconds <= SHORT_SECONDS:
        return 0.0
    return min(SHARE * held_seconds, MAX_YIELD_SECONDS)
