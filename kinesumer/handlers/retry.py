"""Call a handler that failed again: how often, and after which wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core.backoff import backoff_seconds
from kinesumer.errors import ConfigurationError
from kinesumer.model.validation import require_error_types

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

MOST_ATTEMPTS = 1_000_000
MOST_SECONDS = 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How often ``run()`` calls a handler that raises, and how long it waits between.

    Each wait is twice the one before, reduced at random by up to half. Raises
    ConfigurationError for a value that can't work.
    """

    max_attempts: int = 5
    """Calls with the same records, including the first one (1: no retry)."""
    initial_delay_seconds: float = 0.2
    """Longest wait after the first failure, in seconds."""
    max_delay_seconds: float = 30.0
    """Longest wait, in seconds."""
    non_retryable: tuple[type[Exception], ...] = ()
    """Errors that another call cannot correct: they are not tried again."""

    def __post_init__(self) -> None:
        """Check the values. Raises ConfigurationError."""
        max_attempts = self.max_attempts
        if type(max_attempts) is not int or not 1 <= max_attempts <= MOST_ATTEMPTS:
            raise ConfigurationError(
                f"RetryPolicy(max_attempts={max_attempts!r}) must be a whole number "
                f"from 1 to {MOST_ATTEMPTS:,}"
            )
        for name in ("initial_delay_seconds", "max_delay_seconds"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value <= MOST_SECONDS:
                raise ConfigurationError(
                    f"RetryPolicy({name}={value!r}) must be greater than 0 and at "
                    f"most {MOST_SECONDS:g} seconds"
                )
        kinds = require_error_types("non_retryable", self.non_retryable)
        object.__setattr__(
            self, "non_retryable", kinds
        )  # isinstance() takes tuples only

    def wait_seconds(self, failures: int, random: Random) -> float:
        """Return how long to wait after this many failures in a row."""
        return backoff_seconds(
            failures,
            self.initial_delay_seconds,
            self.max_delay_seconds,
            random.random(),
        )


class Failure(NamedTuple):
    """The last error for some records, and how many calls they have had."""

    error: BaseException
    calls: int
    """How often user code was called with them."""


async def call_again(
    policy: RetryPolicy,
    failure: Failure,
    call: Callable[[], Awaitable[BaseException | None]],
    sleep: Callable[[float], Awaitable[None]],
    random: Random,
) -> Failure | None:
    """Call again after a first failure, as often as the policy allows.

    ``call`` returns the error that it failed with. Return the last failure, or None if
    a call succeeded.
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
