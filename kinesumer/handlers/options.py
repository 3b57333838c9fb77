"""The arguments of ``run()``, checked before anything happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from kinesumer.errors import ConfigurationError
from kinesumer.handlers.failure_policy import OnFailure
from kinesumer.handlers.middleware import wrapped
from kinesumer.handlers.retry import RetryPolicy
from kinesumer.handlers.signature import read_handler
from kinesumer.handlers.tracing import read_traceparent
from kinesumer.model.validation import require_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.dead_letters.base import DeadLetterFunction
    from kinesumer.handlers.middleware import Middleware
    from kinesumer.handlers.signature import Handler
    from kinesumer.handlers.tracing import Traceparent

MOST_CONCURRENCY = 10_000


class RunOptions(NamedTuple):
    """How ``run()`` handles records."""

    handler: Handler
    concurrency: int = 1
    """Calls at a time within one shard."""
    on_failure: OnFailure = "stop-client"
    dead_letters: str | DeadLetterFunction | None = None
    retries: RetryPolicy = RetryPolicy()
    traceparent: Traceparent | None = None


def read_run_options(
    handler: object,
    *,
    batch: bool | None = None,
    concurrency: int = 1,
    on_failure: OnFailure | None = None,
    dead_letters: str | DeadLetterFunction | None = None,
    retries: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
    middleware: Sequence[Middleware] = (),
    traceparent: Any = None,
) -> RunOptions:
    """Check the arguments of ``run()``. Raises ConfigurationError."""
    if type(concurrency) is not int or not 1 <= concurrency <= MOST_CONCURRENCY:
        raise ConfigurationError(
            f"concurrency={concurrency!r} must be a whole number from 1 "
            f"to {MOST_CONCURRENCY:,}"
        )
    if not isinstance(retries, RetryPolicy):
        raise ConfigurationError(f"retries={retries!r} must be a RetryPolicy")
    return RunOptions(
        wrapped(read_handler(handler, batch), require_list("middleware", middleware)),
        concurrency,
        _policy(on_failure, dead_letters),
        dead_letters,
        retries,
        read_traceparent(traceparent),
    )


def _policy(
    on_failure: OnFailure | None, dead_letters: str | DeadLetterFunction | None
) -> OnFailure:
    """Return what to do with a record that fails for good."""
    if on_failure is not None and on_failure not in get_args(OnFailure):
        known = ", ".join(get_args(OnFailure))
        raise ConfigurationError(f"on_failure={on_failure!r} must be one of {known}")
    if dead_letters is None:
        if on_failure == "dead-letter":
            raise ConfigurationError(
                "on_failure='dead-letter' needs a target: give run() dead_letters="
            )
        return on_failure or "stop-client"
    from kinesumer.dead_letters import check_target

    check_target(dead_letters)
    if on_failure not in (None, "dead-letter"):
        raise ConfigurationError(
            f"dead_letters= has no effect with on_failure={on_failure!r}: leave one "
            "of them out"
        )
    return "dead-letter"
