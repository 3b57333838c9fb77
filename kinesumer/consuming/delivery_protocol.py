"""Define how user code gets records, and find a client's oldest work."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kinesumer.consuming.assignment_callbacks import AssignmentCallbacks
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import PrefetchBuffer
from kinesumer.consuming.streams import OpenStream
from kinesumer.consuming.watchdog import (
    REQUEST_SECONDS,
    InFlightWork,
    task_stack,
    thread_stack,
)
from kinesumer.core.delivery import Effect, Free, Processed, Signal, Unfinished
from kinesumer.model.times import Until
from kinesumer.runtime.clock import LoopClock
from kinesumer.runtime.failure_log import logger
from kinesumer.telemetry.api import Telemetry

if TYPE_CHECKING:
    # This import is slow.
    from kinesumer.aws.session import ClientFactory

# Starts the client unless it has started already, and raises the start's errors.
Starter = Callable[[], Awaitable[None]]

UserTask = asyncio.Task[object]


class EngineParts(NamedTuple):
    """The parts of the client that a delivery needs."""

    buffer: PrefetchBuffer  # where batches come from
    commit_soon: Callable[[], None]  # requests an early commit of positions
    telemetry: Telemetry

    def carry_out(self, effects: Iterable[Effect[OwnedShard]]) -> None:
        """Carry out the effects that a machine of delivery has decided."""
        for effect in effects:
            match effect:
                case Free(shard, size):
                    self.buffer.give_back(shard, size)
                case Processed(shard, count, size):
                    arn = shard.key.stream_arn
                    self.telemetry.count("consumed_messages", arn, count)
                    self.telemetry.count("data_bytes_processed", arn, size)
                case Signal.WAKE:
                    self.buffer.wake()
                case Signal.COMMIT:
                    self.commit_soon()
                case Unfinished():
                    _log_unfinished(effect)


def _log_unfinished(effect: Unfinished[OwnedShard]) -> None:
    owned, error = effect.shard, effect.error
    is_cancelled = isinstance(error, asyncio.CancelledError)
    logger.log(
        logging.INFO if is_cancelled else logging.WARNING,
        "%s %s: a task ended (%s) with %d records in hand that aren't done: %s",
        owned.source.stream,
        owned.source.shard_id,
        "cancelled" if is_cancelled else repr(error),
        effect.records,
        effect.fate,
        extra=owned.log_fields,
    )


class DeliveryProtocol(Protocol):
    """Delivers batches from the buffer, and keeps track of which records are done."""

    callbacks: AssignmentCallbacks | None = None  # None if user code has none
    until: Until | None = None  # the time at which reading ends, if it does
    thread: int = 0  # the thread of the client's event loop
    _parts: EngineParts | None = None  # None before the start

    def oldest_work(self) -> InFlightWork | None:
        """Return user code's work that began first, or None if it has no work."""

    def connect(self, parts: EngineParts) -> None:
        """Set the parts of the client. The client calls this on its event loop."""
        self._parts, self.thread = parts, threading.get_ident()

    async def open(self, clients: ClientFactory) -> None:
        """Open the AWS clients that the delivery needs, by default none."""
        return

    async def add_streams(
        self,
        streams: Iterable[OpenStream],
        handlers: Mapping[Any, object] | None = None,
    ) -> None:
        """Prepare the delivery of streams before they are read.

        ``handlers`` are those that the user gave for them. Raises ConfigurationError if
        a stream can't be delivered.
        """

    def close(self, fatal: BaseException | None = None) -> None:
        """Stop delivering records. If ``fatal`` is given, raise it in user code."""

    def reopen(self) -> None:
        """Allow another start after a failed one has closed the delivery.

        The default is to do nothing.
        """
        return

    def sync_progress(self) -> None:
        """Update the shards' progress with the records that user code has processed."""

    def has_dead_letters(self, stream_arn: str) -> bool:
        """Return whether a stream's records can become dead letters."""
        return False

    def has_records(self, owned: OwnedShard, *, waiting: bool) -> bool:
        """Return whether user code has records of a shard.

        With ``waiting``, return also whether records of it wait for user code.
        """

    def is_in_use_beside(self, task: UserTask | None) -> bool:
        """Return whether a task other than ``task`` may have records."""


def oldest_of(
    delivery: DeliveryProtocol,
    owned_shards: Iterable[OwnedShard],
    loop_clock: LoopClock,
) -> InFlightWork | None:
    """Return what has made no progress for the longest time, or None.

    This may be user code, a reader's request, or the event loop if something blocks it:
    a blocked event loop receives no answers. Any thread may call this.
    """
    user, thread = delivery.oldest_work(), delivery.thread
    works = [] if user is None else [user]
    if delivery.callbacks is not None:
        works += delivery.callbacks.works()
    if (held := loop_clock.blocked_since()) is not None:
        what = "what runs on the event loop and blocks it"
        works.append(InFlightWork(held, what, lambda: thread_stack(thread)))
    for owned in owned_shards:
        since = owned.request_since
        if since is not None:
            asked = loop_clock.to_client_time(since) + REQUEST_SECONDS
            works.append(_fetching(owned, asked, thread))
    return min(works, default=None, key=lambda work: work.since)


def _fetching(owned: OwnedShard, since: float, thread: int) -> InFlightWork:
    source = owned.source
    what = f"the request for records of {source.stream} {source.shard_id}"
    return InFlightWork(since, what, lambda: task_stack(owned.task, thread), owned)
