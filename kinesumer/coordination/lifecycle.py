"""Start the parts of a client on demand, and stop them at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.consuming.delivery_protocol import DeliveryProtocol, Starter
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.streams import StreamLike, as_streams, check_until
from kinesumer.coordination.connections import Identity, Ports
from kinesumer.errors import CommitTimeoutError, ConfigurationError, KinesumerError
from kinesumer.model.batches import Batch
from kinesumer.model.records import Record
from kinesumer.model.streams import Start, StartLike, Stream, as_start
from kinesumer.model.times import Until, UntilLike, as_until
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import IncidentLog, logger
from kinesumer.runtime.stop_signals import StopSignals
from kinesumer.runtime.tasks import cancel_and_wait
from kinesumer.runtime.threads import RETRY_SECONDS, is_refusal

if TYPE_CHECKING:
    # This import is slow.
    from kinesumer.coordination.group import GroupConsumer


class _StartRequest(NamedTuple):
    """The arguments of ``consume()`` or ``run()``."""

    delivery: DeliveryProtocol
    streams: list[Stream]
    position: Start


class ClientLifecycle:
    """Starts a client when its first record is requested, and stops it.

    A failed start is undone, and the next request starts the client again.
    """

    def __init__(self, identity: Identity, ports: Ports) -> None:
        self.group: GroupConsumer | None = None  # set while the client runs
        self._identity, self._ports = identity, ports
        self._connections = AsyncExitStack()
        self._request: _StartRequest | None = None  # the last prepared start
        self._starting: asyncio.Task[None] | None = None
        self._entered = False
        self._is_leaving = False
        self._leaving: asyncio.Task[None] | None = None  # the task of a signal

    def running(self) -> GroupConsumer:
        """Return the client's group. Raise KinesumerError if the client doesn't run."""
        if self.group is None:
            raise KinesumerError("nothing is consumed yet: iterate over consume()")
        return self.group

    def owned_shards(self) -> Iterable[OwnedShard]:
        """Return the owned shards, with the present progress of user code."""
        if self.group is None:
            return ()
        self.group.sync_progress()
        return [owned for owned in self.group.owned_shards() if owned.can_store]

    def ack(self, done: Record[Any] | Batch[Any]) -> None:
        """Mark a record or a batch as processed (``commit="manual"``)."""
        group = self.running()
        if self._ports.history is not None:
            self._ports.history.done(done)
        group.ack(done)

    def enter(self) -> None:
        """Record that the client is entered. Raise ConfigurationError if it was."""
        if self._entered:
            raise ConfigurationError(
                "a client can be entered once: create one for each asyncio.run() and "
                "each `async with`"
            )
        self._entered = True

    def check(
        self,
        streams: StreamLike | Sequence[StreamLike],
        start: StartLike,
        until: UntilLike | None,
    ) -> tuple[list[Stream], Start, Until | None]:
        """Return the arguments of ``consume()`` or ``run()``. It may be called now.

        Raises ConfigurationError otherwise, and if an argument is wrong.
        """
        if not self._entered:
            raise ConfigurationError("use the client in `async with Kinesumer(...)`")
        if self._request is not None and not self._start_failed:
            raise ConfigurationError(
                "consume() or run() was called before; call refresh() to change the "
                "streams"
            )
        checked, end = as_streams(streams), as_until(until)
        check_until(end, checked)
        return checked, as_start(start), end

    @property
    def _start_failed(self) -> bool:
        starting = self._starting
        if starting is None or not starting.done() or starting.cancelled():
            return False
        return starting.exception() is not None

    def prepare(
        self, delivery: DeliveryProtocol, streams: list[Stream], position: Start
    ) -> Starter:
        """Return the function that starts the client for this delivery."""
        self._request = request = _StartRequest(delivery, streams, position)
        if self._is_leaving:
            delivery.close()
        return partial(self._ensure_started, request)

    async def _ensure_started(self, request: _StartRequest) -> None:
        """Start the client if it hasn't started. Raise the error if this fails."""
        if request is not self._request:
            raise ConfigurationError(
                "consume() or run() was called again after a failed start: iterate "
                "over what the last call returned"
            )
        if self._is_leaving:
            return
        # Use a separate task: cancelling the first anext() must not cancel the start.
        if self._starting is None or self._start_failed:
            self._starting = asyncio.create_task(self._begin(request))
        try:
            await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            # leave() may have cancelled the start, which is no error. Pass on a
            # cancellation of the caller.
            if not self._starting.cancelled():
                raise

    async def run(self, handling: Awaitable[None]) -> None:
        """Wait until all records are handled, and release all shards.

        Raises errors of the start, of handlers and of callbacks.
        """
        try:
            await handling
        finally:
            # Release the shards now. Otherwise other clients would have to wait for
            # them until the caller leaves the ``async with`` block.
            if self.group is not None:
                await self.group.departure.release_all(0.0)
        self._raise_callback_error()

    async def started(self) -> None:
        """Wait until a start that has begun is over. Raise its error."""
        if self._starting is not None:
            await asyncio.shield(self._starting)

    async def refresh(
        self, streams: StreamLike | Sequence[StreamLike] | Mapping[Any, object]
    ) -> None:
        """Consume these streams, or those in {stream: handler}, and no others."""
        group = self.running()
        await self.started()
        names = [*streams] if isinstance(streams, Mapping) else streams
        self._note("refresh", streams=_shown(as_streams(names)))
        await group.refresh(streams)

    async def leave(self) -> None:
        """Hand over all shards while still consuming, then end the delivery."""
        self._is_leaving = True
        self._note("leave")
        if self.group is not None and self.group.session is not None:
            await self.group.leave()
        elif self._request is not None:
            self._request.delivery.close()
            if self._starting is not None:
                self._starting.cancel()

    def stop_signals(self) -> StopSignals:
        """Return handlers for SIGINT and SIGTERM that let the client leave.

        Call it on the client's event loop.
        """
        loop = asyncio.get_running_loop()

        def begin() -> None:
            self._leaving = loop.create_task(self.leave())

        return StopSignals(lambda: loop.call_soon_threadsafe(begin))

    async def end(self, error: BaseException | None) -> None:
        """Commit, release all shards, and close the connections.

        ``error`` is what ended the user's block. It takes precedence over the error
        that the last commit timed out.
        """
        self._note("end")
        if self._starting is not None:
            await cancel_and_wait(self._starting)
        try:
            # Releasing shards needs the store, so the connections are closed after it.
            if self.group is not None:
                await self.group.stop(wait_for_user=self._is_in_use())
            if error is None:
                self._raise_callback_error()
        except CommitTimeoutError as late:
            if error is None:
                raise
            logger.error("%s", late, extra={"client_id": self._identity.client_id})
        finally:
            if self._leaving is not None:
                self._leaving.cancel()
            await self._connections.aclose()

    def _raise_callback_error(self) -> None:
        """Raise the error of a callback that no iteration has raised, if any."""
        if self._request is not None and self._request.delivery.callbacks is not None:
            self._request.delivery.callbacks.raise_error()

    async def _begin(self, request: _StartRequest) -> None:
        try:
            self.group = await self._built(request.delivery)
            until, streams = request.delivery.until, _shown(request.streams)
            start = request.position
            self._note("consume", streams=streams, start=start, until=until)
            await self.group.start(request.streams, request.position)
        except Exception:
            await self._undo_start(request.delivery)
            raise

    async def _undo_start(self, delivery: DeliveryProtocol) -> None:
        """Undo a failed start, so that the client can be started again."""
        group, self.group = self.group, None
        try:
            if group is not None:
                await group.stop(wait_for_user=False)
        except KinesumerError as late:
            logger.warning(
                "other clients take the shards when this client's lease runs out: %s",
                late,
                extra={"client_id": self._identity.client_id},
            )
        finally:
            await self._connections.aclose()
            delivery.reopen()

    async def _built(self, delivery: DeliveryProtocol) -> GroupConsumer:
        """Build the client's parts. Try again while the system refuses one of them."""
        while True:
            try:
                return await self._build_group(delivery)
            except Exception as error:
                if not is_refusal(error):
                    raise
                await self._connections.aclose()
                logger.warning(
                    "the client can't start, trying again: %s",
                    error,
                    extra={"client_id": self._identity.client_id},
                )
            await asyncio.sleep(RETRY_SECONDS)

    async def _build_group(self, delivery: DeliveryProtocol) -> GroupConsumer:
        from kinesumer.coordination.group import GroupConsumer

        ports, incidents = self._ports, IncidentLog(self._ports.clock)
        connections = await self._connections.enter_async_context(
            ports.connect(self._identity, incidents)
        )
        context = ClientContext.create(
            app=self._identity.app,
            client_id=self._identity.client_id,
            config=self._identity.config,
            store=connections.store,
            clock=ports.clock,
            random=ports.random,
            new_id=ports.new_id,
            incidents=incidents,
            telemetry=connections.telemetry,
            row_leases=connections.row_leases,
        )
        heartbeat = connections.heartbeat(context)
        group = GroupConsumer(context, connections.open_source, heartbeat, delivery)
        connections.telemetry.watch(group.read_gauges)
        if connections.clients is not None:
            await delivery.open(connections.clients)
        return group

    def _note(self, kind: str, **fields: object) -> None:
        """Write what a replay has to do at this time, if there is a history."""
        if self._ports.history is not None:
            self._ports.history.note(kind, fields)

    def _is_in_use(self) -> bool:
        """Return whether a task other than the current one may have records."""
        if self._request is None:
            return False
        return self._request.delivery.is_in_use_beside(asyncio.current_task())


def _shown(streams: Sequence[Stream]) -> list[dict[str, object]]:
    """Return what a replay has to know of streams: no roles."""
    return [
        {name: getattr(stream, name) for name in REPLAYED_OPTIONS} for stream in streams
    ]


# The options of a stream that a replay needs.
REPLAYED_OPTIONS = (
    "name",
    "region",
    "start",
    "min_read_interval_seconds",
    "fan_out",
    "fan_out_fallback",
)
