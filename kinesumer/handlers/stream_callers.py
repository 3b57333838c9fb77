"""Make what calls the handler of each stream, and open the targets of dead letters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.streams import OpenStream
from kinesumer.core.work_queue import KeyedWork, OrderedWork, UnmarkedWork, WorkQueue
from kinesumer.decoding.decoders import DecompressionRoom
from kinesumer.handlers.dead_letters.letter import DeadLetterFunction, DeadLetters
from kinesumer.handlers.executor import HandlerExecutor
from kinesumer.handlers.failure_policy import (
    DeadLetterPolicy,
    FailurePolicy,
    stop_client,
    stop_shard,
)
from kinesumer.handlers.handler import RunOptions, StreamHandlers
from kinesumer.handlers.handler_function import traced
from kinesumer.handlers.invokers import Gate, HandlerInvoker, RecordDecoding
from kinesumer.handlers.shard_queue import Failure, WorkItem
from kinesumer.ports import Clock
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.threads import Threads
from kinesumer.telemetry.api import Telemetry
from kinesumer.telemetry.history import History

if TYPE_CHECKING:
    # This import is slow.
    from kinesumer.aws.session import ClientFactory


class SharedParts(NamedTuple):
    """Hold what is the same for the callers of all streams."""

    clock: Clock
    gate: Gate
    threads: Threads
    telemetry: Telemetry
    room: DecompressionRoom


class StreamCaller(NamedTuple):
    """Calls the handler of one stream."""

    options: RunOptions
    executor: HandlerExecutor
    acks_by_return: bool  # whether records are done when the handler returns

    def new_queue(
        self, owned: OwnedShard, new_item: Callable[..., WorkItem]
    ) -> WorkQueue[OwnedShard, WorkItem]:
        """Return the queue of one shard of the stream."""
        workers = self.options.concurrency
        if not self.acks_by_return:
            return UnmarkedWork(owned, new_item)
        if workers == 1:
            return OrderedWork(owned, new_item)
        whole = self.options.function.takes_batches
        return KeyedWork(owned, new_item, workers=workers, whole=whole)


class StreamCallers:
    """The callers of all streams, which share targets of dead letters."""

    def __init__(
        self,
        handlers: StreamHandlers,
        app: str,
        random: Random,
        history: History | None,
        *,
        acks_by_return: bool = True,
    ) -> None:
        # The caller of each stream's handler, by the stream's ARN.
        self.by_arn: dict[str, StreamCaller] = {}
        # The open targets of dead letters, by name.
        self.letters: dict[str, DeadLetters] = {}
        self.clients: ClientFactory
        self._handlers, self._app, self._random = handlers, app, random
        self._history, self._acks_by_return = history, acks_by_return
        self._shared: SharedParts

    def connect(self, shared: SharedParts) -> None:
        """Set what the callers of all streams share."""
        self._shared = shared

    async def add(
        self, streams: Iterable[OpenStream], handlers: Mapping[Any, object] | None
    ) -> None:
        """Add callers for streams; ``handlers`` are those that ``refresh()`` was given.

        Raises ConfigurationError for a stream without a handler, and errors of a target
        that can't be used. If it raises an error, no stream is added.
        """
        given = self._handlers
        if handlers is not None:
            given = given.replaced(handlers)
        added = {}
        for stream in streams:
            present = self.by_arn.get(stream.arn)
            options = given.of(stream, present.options if present else None)
            if present is None:
                _warn_unordered(stream, options.concurrency)
                added[stream.arn] = await self.new_caller(options)
        self.by_arn |= added

    async def aclose(self) -> None:
        """Close all targets of dead letters, even if closing one of them fails."""
        async with AsyncExitStack() as targets:
            for letters in self.letters.values():
                targets.push_async_callback(letters.aclose)

    async def new_caller(
        self,
        options: RunOptions,
        wrap: Callable[[FailurePolicy], FailurePolicy] | None = None,
    ) -> StreamCaller:
        """Return what calls a handler. Raises errors of a target that can't be used.

        ``wrap`` returns the policy to use in place of the one that the options say.
        """
        clock, gate, threads, telemetry, _ = self._shared
        function, whole = options.function, options.function.takes_batches
        if options.traceparent is not None and not whole:
            function = traced(function, telemetry, options.traceparent)
        policy = await self._new_failure_policy(options)
        if wrap is not None:
            policy = wrap(policy)
        if (history := self._history) is not None:
            call = history.around(function.call, is_async=function.is_async)
            function = function._replace(call=call)
            policy = _noted(policy, history)
        executor = HandlerExecutor(
            HandlerInvoker(function, clock, gate, threads),
            gate,
            options.retries,
            policy,
            self._random,
            clock,
            telemetry,
            options.traceparent if whole else None,
            math.inf if options.dead_letters is None else options.dead_letter_limit,
            _decoding(options, self._shared),
            one_by_one=not whole,
        )
        return StreamCaller(options, executor, self._acks_by_return)

    async def _new_failure_policy(self, options: RunOptions) -> FailurePolicy:
        if options.dead_letters is None:
            is_shard = options.on_failure == "stop-shard"
            return stop_shard if is_shard else stop_client
        clock, gate, _, telemetry, _ = self._shared
        letters = await self._open(options.dead_letters)
        return DeadLetterPolicy(
            letters, self._app, clock, self._random, gate, telemetry
        )

    async def _open(self, target: str | DeadLetterFunction) -> DeadLetters:
        """Return a target of dead letters. A target with a name is opened once."""
        from kinesumer.handlers.dead_letters.targets import (
            CallableLetters,
            open_readable,
        )

        if not isinstance(target, str):
            return CallableLetters(target)
        if target not in self.letters:
            self.letters[target] = await open_readable(target, self.clients)
        return self.letters[target]


def _noted(policy: FailurePolicy, history: History) -> FailurePolicy:
    """Return a policy that also writes to the history which record is given up."""

    async def act(item: WorkItem, failure: Failure) -> None:
        await policy(item, failure)
        history.given_up(item.current)

    return act


def _decoding(options: RunOptions, shared: SharedParts) -> RecordDecoding | None:
    if options.decoder is None:
        return None
    whole = options.function.takes_batches
    # Other policies than dead letters end the handling at the first failed record, so
    # the records before it must be handled first.
    takes_out = whole and options.dead_letters is not None
    return RecordDecoding(
        options.decoder, shared.gate, shared.clock, whole, takes_out, shared.room
    )


def _warn_unordered(stream: OpenStream, concurrency: int) -> None:
    """Warn about a stream that doesn't keep the order of a key's records."""
    if concurrency > 1 and not stream.info.routes_by_key:
        logger.warning(
            "%s distributes records by AUTO: records of one key come in any "
            "order, from several shards at once; concurrency=%d keeps no order",
            stream.label,
            concurrency,
            extra={"stream": stream.name},
        )
