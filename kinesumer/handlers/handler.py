"""Declare the handlers of ``run()`` and their options, check them, and find each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
)

from kinesumer.consuming.streams import OpenStream, StreamLike, as_streams
from kinesumer.decoding.decoders import Decode, Decoder, read_decoder
from kinesumer.errors import ConfigurationError, DecodeError
from kinesumer.handlers.handler_function import (
    HandlerFunction,
    Middleware,
    TakesBatches,
    Traceparent,
    read_function,
    read_traceparent,
    wrapped,
)
from kinesumer.handlers.retry_policy import RetryPolicy
from kinesumer.model.batches import Batch, ColumnBatch
from kinesumer.model.owned import OnAssigned, OnRevoked
from kinesumer.model.records import Record
from kinesumer.model.streams import StartLike, Stream
from kinesumer.model.times import UntilLike
from kinesumer.model.validation import require_list

if TYPE_CHECKING:
    # This import is slow.
    from kinesumer.handlers.dead_letters.letter import DeadLetterFunction

V = TypeVar("V")
# A page has no more records, so most of more workers would have nothing to do.
MAX_CONCURRENCY = 10_000
# Few enough to look through by hand. More than the bad records that a faulty producer
# usually writes to one shard before it is stopped.
DEFAULT_LIMIT = 100

OnFailure = Literal["dead-letter", "stop-shard", "stop-client"]

Handle = (
    Callable[[Record[V]], object]
    | Callable[[Batch[V]], object]
    | Callable[[ColumnBatch[V]], object]
)
# The keys are streams, which run() checks. The type of a mapping's keys is
# invariant, so no other type permits strings, Stream objects, and both together.
Handlers = Mapping[Any, "Handle[Any] | Handler"]


class CallKeywords(TypedDict, total=False):
    """The keyword arguments about a handler's calls, wherever its records come from.

    The type of a handler's function depends on ``decode=``, which is not one of these.
    """

    batch: TakesBatches | None
    concurrency: int
    dead_letters: str | DeadLetterFunction | None
    dead_letter_limit: float
    retries: RetryPolicy
    middleware: Sequence[Middleware]
    traceparent: str | Traceparent | None


class HandlerKeywords(CallKeywords, total=False):
    """The keyword arguments of ``run()`` for all handlers, except ``decode=``."""

    on_failure: OnFailure | None


class HandlerDefaults(HandlerKeywords, total=False):
    """The keyword arguments of ``run()`` that are the defaults of all handlers."""

    decode: Any


class RunKeywords(HandlerKeywords, total=False):
    """All keyword arguments of ``run()``, except ``decode=``."""

    start: StartLike
    until: UntilLike | None
    stop_signals: bool
    on_assigned: OnAssigned | None
    on_revoked: OnRevoked | None


@dataclass(frozen=True, slots=True)
class Handler:
    """One stream's handler with its own options, for ``run({stream: Handler(...)})``.

    The options have the names and the meaning of ``run()``'s keyword arguments. If an
    option is None, the value that ``run()`` was given applies. A handler with its own
    ``dead_letters`` ignores ``run()``'s ``on_failure``. A handler that stops its shard
    or the client ignores ``run()``'s ``dead_letters``. ``run()`` raises
    ConfigurationError if an option can't be used.
    """

    function: Handle[Any]
    """The function that is called with each record or batch."""
    _: KW_ONLY
    batch: TakesBatches | None = None
    """True if the function takes batches, and ``"columns"`` if it takes batches whose
    records are Arrow arrays. By default, its annotation decides."""
    concurrency: int | None = None
    """Maximum number of parallel calls for one shard."""
    on_failure: OnFailure | None = None
    """The action for a record that still fails after all retries."""
    dead_letters: str | DeadLetterFunction | None = None
    """The target that stores dead letters. Several streams may name one target."""
    dead_letter_limit: float | None = None
    """A shard waits if it has so many more dead letters than handled records."""
    retries: RetryPolicy | None = None
    """Number of retries of a failed call, and the waits between them."""
    middleware: Sequence[Middleware] | None = None
    """Hooks around each call. An empty list removes those of ``run()``."""
    traceparent: str | Traceparent | None = None
    """The place of the producer's W3C trace context in a record."""
    decode: Decode[Any] | UnionType | None = None
    """The decoder of the records that the function gets."""


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
    batch: TakesBatches | None = None,
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


def read_limit(limit: object) -> float:
    """Return a checked limit; infinite if there is none."""
    if limit == math.inf or (type(limit) is int and limit >= 1):
        assert isinstance(limit, int | float)
        return limit
    raise ConfigurationError(
        f"dead_letter_limit={limit!r} must be a whole number of at least 1, or "
        "math.inf for no limit"
    )


class StreamHandlers(NamedTuple):
    """The checked handlers of ``run()``: one for all streams, or one for each."""

    streams: StreamLike | Sequence[StreamLike]
    defaults: HandlerDefaults
    # The handler of all streams; None if each stream has its own.
    common: RunOptions | None
    by_stream: Mapping[Stream, RunOptions]

    def replaced(self, handlers: Mapping[Any, object]) -> StreamHandlers:
        """Return the handlers that ``refresh()`` gets, with the same defaults.

        Raises ConfigurationError if one handler is called for all streams.
        """
        if self.common is not None:
            raise ConfigurationError(
                "run() has one handler for all streams: give refresh() streams only, "
                "or call run({stream: handler})"
            )
        return self._replace(by_stream=_read_each(handlers, self.defaults))

    def of(self, stream: OpenStream, present: RunOptions | None) -> RunOptions:
        """Return a stream's handler. ``present`` is the one that the stream has.

        Raises ConfigurationError if the stream has no handler, or if another handler
        is given for it.
        """
        given = self.common or self.by_stream.get(stream.stream)
        found = present or given
        if found is None:
            raise ConfigurationError(
                f"{stream.label} has no handler: name it in run({{stream: handler}}) "
                "or refresh({stream: handler})"
            )
        if given is not None and given.declared != found.declared:
            raise ConfigurationError(
                f"{stream.label} has a handler, which refresh() can't replace: give "
                "it the same handler, or only the stream"
            )
        return found


def read_handlers(
    streams: Any, handler: object, defaults: HandlerDefaults
) -> StreamHandlers:
    """Check the handler or the handlers of ``run()``. Raises ConfigurationError."""
    decode = defaults.get("decode")
    if not isinstance(streams, Mapping):
        if isinstance(decode, Mapping):
            raise ConfigurationError(
                "decode={stream: type} needs a handler for each stream: call "
                "run({stream: handler}), or give decode= one type or function"
            )
        return StreamHandlers(
            streams, defaults, read_run_options(handler, **defaults), {}
        )
    if handler is not None:
        raise ConfigurationError(
            f"run() was given {{stream: handler}} and handler={handler!r}: leave one "
            "of them out"
        )
    by_stream = _read_each(streams, defaults)
    if isinstance(decode, Mapping):
        _check_keys(decode, list(by_stream))
    return StreamHandlers([*by_stream], defaults, None, by_stream)


def _read_each(
    handlers: Mapping[Any, object], defaults: HandlerDefaults
) -> dict[Stream, RunOptions]:
    found: dict[Stream, RunOptions] = {}
    for stream, handler in zip(as_streams([*handlers]), handlers.values(), strict=True):
        if stream in found:
            raise ConfigurationError(
                f"stream {stream.name} is named twice: name it once"
            )
        try:
            options = _with_decode_of(stream, handler, defaults)
            found[stream] = read_run_options(handler, **options)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"correct the handler of stream {stream.name}: {error}"
            ) from error
    return found


def _with_decode_of(
    stream: Stream, handler: object, defaults: HandlerDefaults
) -> HandlerDefaults:
    """Return the defaults with ``decode`` for one stream, if ``decode`` is a mapping.

    A stream that the mapping does not name is not decoded by default.
    """
    decode = defaults.get("decode")
    if not isinstance(decode, Mapping):
        return defaults
    named = [own for key, own in decode.items() if key in (stream, stream.name)]
    is_decoded = isinstance(handler, Handler) and handler.decode is not None
    if len(named) + is_decoded > 1:
        raise ConfigurationError("decode= is given for it twice: give it once")
    return {**defaults, "decode": named[0] if named else None}


def _check_keys(decode: Mapping[Any, object], streams: list[Stream]) -> None:
    """Raise ConfigurationError if a key does not name exactly one stream."""
    for key in decode:
        named = [stream for stream in streams if key in (stream, stream.name)]
        if not named:
            raise ConfigurationError(
                f"decode= names {key!r}, which has no handler: give decode= only "
                "streams of {stream: handler}"
            )
        if len(named) > 1:
            raise ConfigurationError(
                f"decode= names {key!r}, but several streams have this name: give "
                "decode= the Stream objects"
            )
