"""How often a handler that fails is called again, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

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

    Each wait is about twice the one before, less up to half of it by chance. Raises
    ConfigurationError for what can't work.
    """

    max_attempts: int = 5
    """Calls with the same records, the first one included (1: none is repeated)."""
    initial_delay_seconds: float = 0.2
    """Longest wait after the first failure."""
    max_delay_seconds: float = 30.0
    """Longest wait."""
    non_retryable: tuple[type[Exception], ...] = ()
    """Errors that another call won't mend: what raises them isn't called again."""

    def __post_init__(self) -> None:
        """Refuse what can't work."""
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
        """Return how long to wait after so many failures in a row."""
        # Doubling on would overflow after a thousand failures.
        longest: float = self.initial_delay_seconds * 2.0 ** min(failures - 1, 40)
        return min(longest, self.max_delay_seconds) * (0.5 + random.random() / 2)


class Failure(NamedTuple):
    """What records have cost so far, and the last error."""

    error: BaseException
    calls: int
    """How often they were given to user code."""


async def retried(
    retries: RetryPolicy,
    failure: Failure,
    call: Callable[[], Awaitable[BaseException | None]],
    sleep: Callable[[float], Awaitable[None]],
    random: Random,
) -> Failure | None:
    """Call again what has failed once, as often as told; return the last failure.

    None if it worked at last.
    """
    # Heavy, and needed by nobody whose handler works.
    from tenacity import AsyncRetrying, retry_if_result, stop_after_attempt

    if retries.max_attempts == 1 or isinstance(failure.error, retries.non_retryable):
        return failure
    is_known = True

    async def attempt() -> Failure | None:
        nonlocal is_known, failure
        if is_known:  # the first failure was seen before there was any need of this
            is_known = False
            return failure
        error = await call()
        if error is None:
            return None
        failure = Failure(error, failure.calls + 1)
        return failure

    retrying = AsyncRetrying(
        sleep=sleep,
        stop=stop_after_attempt(retries.max_attempts),
        wait=lambda state: retries.wait_seconds(state.attempt_number, random),
        retry=retry_if_result(
            lambda found: (
                found is not None and not isinstance(found.error, retries.non_retryable)
            )
        ),
        retry_error_callback=lambda _: failure,
    )
    return await retrying(attempt)
