"""Stop a shard from moving its records aside, as a circuit breaker does.

An outage of what a handler calls would otherwise turn a whole stream into dead letters.
A shard counts its dead letters, less the records that were handled since. At the limit
it is held: it stores no further letter, and calls the handler again and again with the
record that failed, with backoff. The first call that succeeds resets the count.

For example, with a limit of 100, a shard is held after 100 letters in a row, and after
about 300 records of which two thirds fail. If only a third fails, it is never held.
"""

from __future__ import annotations

import math

from kinesumer.errors import ConfigurationError
from kinesumer.handlers.retry import RetryPolicy

# Few enough to look through by hand. More than the bad records that a faulty producer
# usually writes to one shard before it is stopped.
DEFAULT_LIMIT = 100
# Waits between two calls while a shard is held. A dependency that is back is noticed
# within half a minute, and is not flooded before.
HOLD_WAITS = RetryPolicy(initial_delay_seconds=1.0, max_delay_seconds=30.0)


def read_limit(limit: object) -> float:
    """Return a checked limit; infinite if there is none."""
    if limit == math.inf or (type(limit) is int and limit >= 1):
        assert isinstance(limit, int | float)
        return limit
    raise ConfigurationError(
        f"dead_letter_limit={limit!r} must be a whole number of at least 1, or "
        "math.inf for no limit"
    )
