"""Say how often a failing handler is called again, and how long to wait before."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from kinesumer.core.backoff import Backoff
from kinesumer.errors import ConfigurationError
from kinesumer.model.validation import MAX_PAUSE_SECONDS, require_error_types

# With the default waits of up to 30 s, these take most of a year: more is a mistake.
MAX_ATTEMPTS = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """The maximum number of calls of a failing handler, and the waits between them.

    The longest wait doubles with each failure. Each wait is a random time between half
    of the longest wait and the whole of it. Raises ConfigurationError if a value can't
    be used.
    """

    # Chosen: the four waits take 1.5 to 3 s, so that a lost connection is no failure.
    max_attempts: int = 5
    """Maximum number of calls with the same records. With 1, nothing is retried."""
    # Chosen: longer than most calls of a service, which thus gets a pause.
    initial_delay_seconds: float = 0.2
    """Longest wait after the first failure, in seconds."""
    # As long as the longest wait of HOLD_WAITS and of REPAIR_BACKOFF.
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
