"""Declare a handler and its options, as the user gives them to ``run()``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from types import UnionType
from typing import Any, TypedDict, TypeVar

from kinesumer.decoding.decoders import Decode
from kinesumer.handlers.dead_letters.base import DeadLetterFunction
from kinesumer.handlers.failure_policy import OnFailure
from kinesumer.handlers.middleware import Middleware
from kinesumer.handlers.retry import RetryPolicy
from kinesumer.handlers.tracing import Traceparent
from kinesumer.model.owned import OnAssigned, OnRevoked
from kinesumer.model.records import Batch, Record
from kinesumer.model.streams import StartLike
from kinesumer.model.times import UntilLike

V = TypeVar("V")


Handle = Callable[[Record[V]], object] | Callable[[Batch[V]], object]
# The keys are streams, which run() checks. The type of a mapping's keys is
# invariant, so no other type permits strings, Stream objects, and both together.
Handlers = Mapping[Any, "Handle[Any] | Handler"]


class HandlerKeywords(TypedDict, total=False):
    """The keyword arguments of ``run()`` for all handlers, except ``decode=``.

    The type of a handler's function depends on ``decode=``.
    """

    batch: bool | None
    concurrency: int
    on_failure: OnFailure | None
    dead_letters: str | DeadLetterFunction | None
    dead_letter_limit: float
    retries: RetryPolicy
    middleware: Sequence[Middleware]
    traceparent: str | Traceparent | None


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
    batch: bool | None = None
    """True if the function takes batches. By default, its annotation decides."""
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
