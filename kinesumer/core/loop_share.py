"""How much time the event loop gets between two pieces of user code."""

from __future__ import annotations

SHORT_SECONDS = 0.25
"""After a shorter hold some steps of the loop are enough."""
SHARE = 1 / 20
MAX_YIELD_SECONDS = 0.25


def yield_seconds(held_seconds: float) -> float:
    """Return how long to wait after user code held the event loop at a stretch.

    What arrived meanwhile (answers of Kinesis and of the state store) is handled in
    that time, and what follows from it is sent. 0 after a short hold.
    """
    if held_seconds <= SHORT_SECONDS:
        return 0.0
    return min(SHARE * held_seconds, MAX_YIELD_SECONDS)
