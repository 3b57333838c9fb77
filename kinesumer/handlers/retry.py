"""Define how often, and after which waits, a failed handler is called again."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from kinesumer.core.backoff import Backoff
from kinesumer.errors import ConfigurationError
from kinesumer.model.validation import MAX_PAUSE_SECONDS, require_error_types

MAX_ATTEMPTS = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """The maximum number of calls of a failing handler, and the waits between them.

    The longest wait doubles with each failure. Each wait is a random time between half
    of the longest wait and the whole of it. Raises ConfigurationError if a value can't
    be used.
    """

    max_attempts: int = 5
    """Maximum number of calls with the same records. With 1, nothing is retried."""
    initial_delay_seconds: float = 0.2
    """Longest wait after the first failure, in seconds."""
    max_delay_seconds: float = 30.0
    """Longest wait after any number of failures, in seconds."""
    non_retryable: tuple[type[Exception], ...] = ()
    """Error types that are not retried, because another call cannot succeed."""

    def __post_init__(self) -> None:
        """Check the values. Raises ConfigurationError."""
        max_attempts = self.max_attempts
        if type(max_attempts) is not int or not 1 <= max_attempts <= MAX_ATTEMPTS:
            raise ConfigurationError(
                f"RetryPolicy(max_attempts={max_attempts!r}) must be a whole number "
                f"from 1 to {MAX_ATTEMPTS:,}"
            )
        for name in ("initial_delay_seconds", "max_delay_seconds"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value <= MAX_PAUSE_SECONDS:
                raise ConfigurationError(
                    f"RetryPolicy({name}={value!r}) must be greater than 0 and at "
                    f"most {MAX_PAUSE_SECONDS:g} seconds"
                )
        kinds = require_error_types("non_retryable", self.non_retryable)
        # isinstance() accepts a tuple of types, but no list.
        object.__setattr__(self, "non_retryable", kinds)

    def wait_seconds(self, failures: int, random: Random) -> float:
        """Return how long to wait after this many failures in a row."""
        backoff = Backoff(self.initial_delay_seconds, self.max_delay_seconds)
        return backoff.wait_seconds(failures, random.random())


class Failure(NamedTuple):
    """The last error for some records, and the number of calls with them."""

    error: BaseException
    # Number of calls with these records so far.
    calls: int


async def call_again(
    policy: RetryPolicy,
    failure: Failure,
    call: Callable[[], Awaitable[BaseException | None]],
    sleep: Callable[[float], Awaitable[None]],
    random: Random,
) -> Failure | None:
    """Call again after a first failure, as often as the policy allows.

    ``call`` returns its error, or None if it succeeded. Return the last failure, or
    None if a call succeeded.
    """
    failures = 1
    while failures < policy.max_attempts:
        if isinstance(failure.error, policy.non_retryable):
            return failure
        await sleep(policy.wait_seconds(failures, random))
        error = await call()
        if error is None:
            return None
        failures += 1
        failure = Failure(error, failure.calls + 1)
    return failure


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
