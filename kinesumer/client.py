"""The public client."""

from __future__ import annotations

import asyncio
import random
import socket
import uuid
from typing import TYPE_CHECKING, Self

from kinesumer.config import Config
from kinesumer.consuming.delivery import RecordDelivery
from kinesumer.consuming.records import Records
from kinesumer.consuming.streams import as_streams
from kinesumer.coordination import pauses
from kinesumer.coordination.group import GroupConsumer
from kinesumer.coordination.heartbeat_thread import HeartbeatThread
from kinesumer.coordination.store_thread import StoreThread
from kinesumer.errors import (
    CommitTimeoutError,
    ConfigurationError,
    KinesumerError,
)
from kinesumer.handlers import RetryPolicy
from kinesumer.model.rows import QUERY_ID
from kinesumer.model.streams import Start
from kinesumer.model.validation import validate_name
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import FailureLog, logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from kinesumer.aws.session import ClientFactory
    from kinesumer.consuming.delivery_protocol import DeliveryProtocol
    from kinesumer.consuming.streams import StreamLike
    from kinesumer.dead_letters.base import DeadLetterFunction
    from kinesumer.handlers import Middleware
    from kinesumer.handlers.failure_policy import OnFailure
    from kinesumer.handlers.tracing import Traceparent
    from kinesumer.model.batch import Batch
    from kinesumer.model.records import Record
    from kinesumer.model.streams import Stream
    from kinesumer.telemetry.otel import OpenTelemetry

    Handle = Callable[[Record], object] | Callable[[Batch], object]


class _ClientStart:
    """The arguments of ``consume()`` or ``run()``; a call of it starts the client."""

    def __init__(
        self,
        client: Kinesumer,
        delivery: DeliveryProtocol,
        streams: list[Stream],
        position: Start,
    ) -> None:
        self.delivery, self.streams, self.position = delivery, streams, position
        self._client = client

    async def __call__(self) -> None:
        """Start the client, unless it has started. Raises what the start raises."""
        await self._client._ensure_started(self)


class Kinesumer:
    """A client that consumes streams together with all others of its app.

    ``app`` names the group. ``table`` is the state store in ``region``, by default the
    session's region. ``client_id`` must be unique among live processes. With a static
    one, such as a pod's name, a restarted process gets its former shards. ``session``
    is an aioboto3 or aiobotocore session; by default the client creates one from the
    standard chain.

    Raises ConfigurationError for names that can't be stored.
    """

    def __init__(
        self,
        app: str,
        *,
        table: str,
        region: str | None = None,
        client_id: str | None = None,
        session: object | None = None,
        config: Config = Config(),  # noqa: B008 - frozen
    ) -> None:
        self.app = validate_name("app", app)
        if client_id is None:
            client_id = _new_client_id()
        self.client_id = validate_name("client_id", client_id)
        if client_id == QUERY_ID:
            raise ConfigurationError(
                f"client_id={client_id!r} is what Spark queries are called: choose "
                "another one"
            )
        self.table = validate_name("table", table)
        self.config = config
        self._region = region
        self._session = session
        self._clients: ClientFactory | None = None
        self._thread: StoreThread | None = None
        self._group: GroupConsumer | None = None
        self._records: Records | None = None
        self._start: _ClientStart | None = None
        """The last call of consume() or run()."""
        self._starting: asyncio.Task[None] | None = None
        self._telemetry: OpenTelemetry | None = None
        self._entered = False
        self._is_leaving = False

    async def __aenter__(self) -> Self:
        self._entered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        from anyio import CancelScope

        # What anyio cancels is cancelled at each await: no shard would be released.
        with CancelScope(shield=True):
            await self._end(error)

    async def _end(self, error: BaseException | None) -> None:
        try:
            await self._stop()
        except CommitTimeoutError as late:
            if error is None:
                raise
            logger.error("%s", late, extra={"client_id": self.client_id})
        finally:
            await self._close_all()

    async def _close_all(self) -> None:
        """Close what the start opened, but for the group."""
        telemetry, self._telemetry = self._telemetry, None
        thread, self._thread = self._thread, None
        clients, self._clients = self._clients, None
        if telemetry is not None:
            telemetry.unwatch()
        if thread is not None:
            await thread.stop()
        if clients is not None:
            await clients.__aexit__(None, None, None)

    def consume(
        self, streams: StreamLike | Sequence[StreamLike], *, start: Start = Start.LATEST
    ) -> Records:
        """Return the records of streams: names, ARNs or ``Stream`` objects.

        ``start`` is where the group begins with a stream that it has no positions for.
        The client starts when the first record is requested. That request raises
        StreamMissingError, StateStoreMissingError, AccessDeniedError, CredentialsError
        and the like; the next request tries again. Raises ConfigurationError if an
        argument can't be used.
        """
        checked = self._check(streams, start)
        acks_by_asking = self.config.commit == "auto"
        delivery = RecordDelivery(SystemClock(), acks_by_asking=acks_by_asking)
        self._start = _ClientStart(self, delivery, checked, start)
        self._records = Records(delivery, self._start)
        return self._records

    async def run(
        self,
        streams: StreamLike | Sequence[StreamLike],
        handler: Handle,
        *,
        start: Start = Start.LATEST,
        batch: bool | None = None,
        concurrency: int = 1,
        on_failure: OnFailure | None = None,
        dead_letters: str | DeadLetterFunction | None = None,
        retries: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
        middleware: Sequence[Middleware] = (),
        traceparent: str | Traceparent | None = None,
    ) -> None:
        """Call ``handler`` with each record or batch, until the client leaves.

        ``batch``, or the annotation of the handler's first parameter (``Record`` or
        ``Batch``), selects which. Plain functions run in threads. A record is done when
        the call has returned.

        A record that still fails after ``retries`` goes to ``dead_letters``:
        ``file:PATH``, ``sqs:URL``, ``kinesis:STREAM``, ``s3://BUCKET/PREFIX``, or an
        async function of a DeadLetter. ``on_failure`` may stop the shard or the client
        instead. Its default is "dead-letter" if there is a target, else "stop-client".
        A failing batch is bisected to find the record.

        ``concurrency`` is the number of calls at a time within one shard; the records
        of one partition key keep their order. ``traceparent`` locates a producer's W3C
        trace context: a path into JSON, or a function of the record.

        Raises HandlerFailedError, DeadLetterNotStoredError, and what ``consume()``
        raises.
        """
        from kinesumer.handlers.options import read_run_options
        from kinesumer.handlers.runner import HandlerRunner

        if self.config.commit == "manual":
            raise ConfigurationError(
                'run() acks records by itself: leave Config(commit="manual") out'
            )
        terms = read_run_options(
            handler,
            batch=batch,
            concurrency=concurrency,
            on_failure=on_failure,
            dead_letters=dead_letters,
            retries=retries,
            middleware=middleware,
            traceparent=traceparent,
        )
        checked = self._check(streams, start)
        runner = HandlerRunner(
            terms,
            app=self.app,
            clock=SystemClock(),
            random=random.Random(),
            drain=self.config.drain_timeout_seconds,
        )
        self._start = _ClientStart(self, runner, checked, start)
        try:
            await runner.run(self._start)
        finally:
            # Other clients shouldn't wait until the caller leaves the block.
            if self._group is not None:
                await self._group.release_all(0.0)

    def _check(
        self, streams: StreamLike | Sequence[StreamLike], start: Start
    ) -> list[Stream]:
        if not self._entered:
            raise ConfigurationError("use the client in `async with Kinesumer(...)`")
        if self._start is not None and not self._start_failed:
            raise ConfigurationError(
                "consume() or run() was called before; call refresh() to change the "
                "streams"
            )
        if not isinstance(start, Start):
            raise ConfigurationError(
                f"start={start!r} must be a Start, such as Start.LATEST"
            )
        return as_streams(streams)

    async def _ensure_started(self, start: _ClientStart) -> None:
        """Start the client, once; after a start that failed, start it again."""
        if start is not self._start:
            raise ConfigurationError(
                "consume() or run() was called again after a failed start: iterate "
                "over what the last call returned"
            )
        if self._is_leaving:
            return
        # A task of its own: cancelling the first anext() must not cancel the start.
        if self._starting is None or self._start_failed:
            self._starting = asyncio.create_task(self._begin(start))
        try:
            await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            # Ignore only leave()'s cancellation, not the caller's.
            if not self._starting.cancelled():
                raise

    @property
    def _start_failed(self) -> bool:
        starting = self._starting
        if starting is None or not starting.done() or starting.cancelled():
            return False
        return starting.exception() is not None

    def ack(self, record: Record) -> None:
        """Acknowledge a record as done, in any order (``commit="manual"``).

        The checkpoint is the end of the contiguous done prefix of its shard.
        """
        if self.config.commit != "manual":
            raise ConfigurationError('ack() needs Config(commit="manual")')
        self._running().ack(record)

    async def commit(self) -> None:
        """Store what is done, and return when it is stored.

        Raises ShardsLostError, which names the shards whose positions couldn't be
        stored because other clients own them by now.
        """
        await self._running().commit()

    async def refresh(self, streams: StreamLike | Sequence[StreamLike]) -> None:
        """Consume these streams from now on, in place of the former ones."""
        group = self._running()
        if self._starting is not None:
            await asyncio.shield(self._starting)
        await group.refresh(streams)
        group.delivery.warn_unsupported(group.streams.values())

    async def pause(
        self, stream: str | None = None, shard: str | None = None, reason: str = ""
    ) -> None:
        """Pause a shard, a stream or everything for all clients of the app.

        ``stream`` is a name or an ARN, ``shard`` the id of one of its shards. Returns
        when the pause is stored. Each owner waits for user code, then releases the
        shard. The pause lasts until ``resume()``, also over restarts of all clients.
        ``reason`` is shown to operators. Raises ConfigurationError for a stream or
        shard that the app doesn't know.
        """
        await pauses.pause(self._running().context, stream, shard, reason)

    async def resume(self, stream: str | None = None, shard: str | None = None) -> None:
        """End the pause of a shard, a stream or everything, and no other pause.

        Raises ConfigurationError for a stream or shard that the app doesn't know.
        """
        await pauses.resume(self._running().context, stream, shard)

    async def leave(self) -> None:
        """Hand over all shards while still consuming, then end the iteration.

        Call it from a task beside the loop, such as a signal handler's. Other clients
        take over within well under a second. Leaving the block without this call costs
        some seconds.
        """
        self._is_leaving = True
        if self._group is not None and self._group.session is not None:
            await self._group.leave()
        elif self._start is not None:
            self._start.delivery.close()
            if self._starting is not None:
                self._starting.cancel()

    async def _begin(self, start: _ClientStart) -> None:
        try:
            self._group = await self._build_group(start.delivery)
            await self._group.start(start.streams, start.position)
            start.delivery.warn_unsupported(self._group.streams.values())
        except Exception:
            await self._undo_start(start.delivery)
            raise

    async def _undo_start(self, delivery: DeliveryProtocol) -> None:
        """Close what a failed start opened: the next start opens it again."""
        group, self._group = self._group, None
        try:
            if group is not None:
                await group.stop(wait_for_user=False)
        except KinesumerError as late:
            logger.warning(
                "other clients take the shards when this client's lease runs out: %s",
                late,
                extra={"client_id": self.client_id},
            )
        finally:
            await self._close_all()
            if isinstance(delivery, RecordDelivery):
                delivery.reopen()

    async def _build_group(self, delivery: DeliveryProtocol) -> GroupConsumer:
        # Heavy, and not needed by who only imports the package.
        from kinesumer.aws.dynamodb import open_borrowed_store
        from kinesumer.aws.kinesis import open_source
        from kinesumer.aws.session import ClientFactory
        from kinesumer.coordination.gauges import read_gauges
        from kinesumer.telemetry.otel import OpenTelemetry

        clients = self._clients = ClientFactory(
            self._session,
            region=self._region,
            role_session_name=f"kinesumer-{self.app}",
            max_connections=self.config.max_connections,
        )
        loan = await clients.lend()
        thread = self._thread = StoreThread(
            lambda: open_borrowed_store(loan, self.table)
        )
        clock = SystemClock()
        telemetry = self._telemetry = OpenTelemetry(self.app, clock)
        context = ClientContext(
            app=self.app,
            client_id=self.client_id,
            config=self.config,
            store=await thread.start(),
            clock=clock,
            random=random.Random(),
            new_id=lambda: uuid.uuid4().hex,
            failure_log=FailureLog(clock, telemetry),
            telemetry=telemetry,
        )
        heart = HeartbeatThread(context, thread)
        group = GroupConsumer(
            context, lambda s: open_source(clients, s), heart, delivery
        )
        telemetry.watch(lambda: read_gauges(group))
        await delivery.open(clients)
        return group

    async def _stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._group is None:
            return
        await self._group.stop(wait_for_user=self._is_in_use())

    def _is_in_use(self) -> bool:
        """Return whether a task other than the current one may have records."""
        task = asyncio.current_task()
        if self._start is None:
            return False
        return self._start.delivery.is_in_use_beside(task)

    def _running(self) -> GroupConsumer:
        if self._group is None:
            raise KinesumerError(
                "nothing is consumed yet: iterate over consume() first"
            )
        return self._group


def _new_client_id() -> str:
    return f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
