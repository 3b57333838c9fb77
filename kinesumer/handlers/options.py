"""Check handlers and their options before the client starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple, Unpack, get_args

from kinesumer.decoding.decoders import Decoder, read_decoder
from kinesumer.errors import ConfigurationError, DecodeError
from kinesumer.handlers.dead_letters.base import DeadLetterFunction
from kinesumer.handlers.failure_policy import OnFailure
from kinesumer.handlers.handler import Handler, HandlerDefaults
from kinesumer.handlers.middleware import Middleware, wrapped
from kinesumer.handlers.retry import DEFAULT_LIMIT, RetryPolicy, read_limit
from kinesumer.handlers.signature import HandlerFunction, read_function
from kinesumer.handlers.tracing import Traceparent, read_traceparent
from kinesumer.model.validation import require_list

MAX_CONCURRENCY = 10_000


class RunOptions(NamedTuple):
    """A handler's checked options, with the defaults filled in."""

    # What the user declared.
    declared: Handler
    function: HandlerFunction
    # Maximum number of simultaneous calls for one shard.
    concurrency: int
    on_failure: OnFailure
    dead_letters: str | DeadLetterFunction | None
    dead_letter_limit: float
    retries: RetryPolicy
    traceparent: Traceparent | None
    decoder: Decoder | None


def read_run_options(
    handler: object, **defaults: Unpack[HandlerDefaults]
) -> RunOptions:
    """Check a function or a Handler, with the options of ``run()`` as defaults.

    Raises ConfigurationError.
    """
    declared = handler if isinstance(handler, Handler) else Handler(handler)  # type: ignore[arg-type]
    options: dict[str, Any] = {**defaults}
    if declared.dead_letters is not None:
        options["on_failure"] = None
    if declared.on_failure not in (None, "dead-letter"):
        options["dead_letters"] = None
    own = {field.name: getattr(declared, field.name) for field in fields(declared)}
    options |= {name: value for name, value in own.items() if value is not None}
    return _checked(declared, **options)


def _checked(
    declared: Handler,
    function: object = None,
    *,
    batch: bool | None = None,
    concurrency: int = 1,
    on_failure: OnFailure | None = None,
    dead_letters: str | DeadLetterFunction | None = None,
    dead_letter_limit: float = DEFAULT_LIMIT,
    retries: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
    middleware: Sequence[Middleware] = (),
    traceparent: Any = None,
    decode: Any = None,
) -> RunOptions:
    if type(concurrency) is not int or not 1 <= concurrency <= MAX_CONCURRENCY:
        raise ConfigurationError(
            f"concurrency={concurrency!r} must be a whole number from 1 "
            f"to {MAX_CONCURRENCY:,}"
        )
    if not isinstance(retries, RetryPolicy):
        raise ConfigurationError(f"retries={retries!r} must be a RetryPolicy")
    hooks = require_list("middleware", middleware)
    return RunOptions(
        declared,
        wrapped(read_function(function, batch), hooks),
        concurrency,
        _policy(on_failure, dead_letters),
        dead_letters,
        read_limit(dead_letter_limit),
        # A record that cannot be decoded now cannot be decoded later.
        replace(retries, non_retryable=(*retries.non_retryable, DecodeError)),
        read_traceparent(traceparent),
        read_decoder(decode),
    )


def _policy(
    on_failure: OnFailure | None, dead_letters: str | DeadLetterFunction | None
) -> OnFailure:
    """Return the policy for records that fail after all retries."""
    if on_failure is not None and on_failure not in get_args(OnFailure):
        known = ", ".join(get_args(OnFailure))
        raise ConfigurationError(f"on_failure={on_failure!r} must be one of {known}")
    if dead_letters is None:
        if on_failure == "dead-letter":
            raise ConfigurationError(
                "on_failure='dead-letter' needs a target: give run() dead_letters="
            )
        return on_failure or "stop-client"
    from kinesumer.handlers.dead_letters.targets import check_target

    check_target(dead_letters)
    if on_failure not in (None, "dead-letter"):
        raise ConfigurationError(
            f"dead_letters= has no effect with on_failure={on_failure!r}: leave one "
            "of them out"
        )
    return "dead-letter"
