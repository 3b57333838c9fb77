"""The client through which an application consumes streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType, UnionType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from kinesumer.config import Config
from kinesumer.consuming import owned_report
from kinesumer.consuming.assignment_callbacks import read_callbacks
from kinesumer.consuming.delivery import RecordDelivery, Records
from kinesumer.consuming.driver import DeliveryDriver
from kinesumer.consuming.streams import StreamLike, Streams
from kinesumer.coordination import pauses
from kinesumer.coordination.connections import Identity, Ports, aws_ports
from kinesumer.coordination.lifecycle import ClientLifecycle
from kinesumer.decoding.decoders import (
    AsyncDecode,
    ConsumeKeywords,
    Decode,
    DecodeKeywords,
    OnDecodeError,
    read_policy,
)
from kinesumer.errors import ConfigurationError
from kinesumer.handlers import Middleware, RetryPolicy
from kinesumer.handlers.handler import (
    DEFAULT_LIMIT,
    Handle,
    HandlerDefaults,
    Handlers,
    OnFailure,
    RunKeywords,
)
from kinesumer.handlers.handler_function import TakesBatches, Traceparent
from kinesumer.model.batches import Batch
from kinesumer.model.owned import (
    OnAssigned,
    OnRevoked,
    ShardAssignment,
    ShardLag,
    ShardPositions,
)
from kinesumer.model.records import Record
from kinesumer.model.streams import ShardKey, Start, StartLike
from kinesumer.model.times import UntilLike
from kinesumer.model.validation import ForAsyncio, require_flag

if TYPE_CHECKING:
    # This import is slow.
    from kinesumer.handlers.dead_letters.letter import DeadLetterFunction

V = TypeVar("V")


class Kinesumer(ForAsyncio):
    """A client that consumes streams together with all other clients of its app.

    ``app`` names the group. ``table`` names the state store in ``region``, which is the
    session's region by default. Without ``table``, the name is that of the variable
    ``KINESUMER_TABLE``, or else ``kinesumer-state-store``. ``client_id`` must be unique
    among live processes. If the id is static, such as a pod's name, a restarted process
    gets its former shards. ``session`` is an aioboto3 or aiobotocore session. By
    default, a new session uses the AWS SDK's standard chain of credentials.
    ``kcl_table`` is the lease table of a KCL fleet: the app's clients join the fleet as
    its workers, and keep the positions there.

    With ``stop_signals``, SIGTERM and SIGINT call ``leave()`` while the client is open:
    the loop or ``run()`` continues until other clients have the shards, and then ends.
    A second signal acts as if there were no handler. Entering the client then raises
    ConfigurationError outside the main thread.

    Raises ConfigurationError for names that can't be stored.
    """

    def __init__(
        self,
        app: str,
        *,
        table: str | None = None,
        region: str | None = None,
        client_id: str | None = None,
        kcl_table: str | None = None,
        session: object | None = None,
        config: Config = Config(),  # noqa: B008 - frozen
        stop_signals: bool = False,
        _ports: Ports | None = None,
    ) -> None:
        require_flag("stop_signals", stop_signals)
        identity = Identity.checked(app, client_id, table, region, config, kcl_table)
        self.app, self.client_id, self.table, _, self.config, _ = identity
        self._ports = _ports or aws_ports(session)
        self._lifecycle = ClientLifecycle(identity, self._ports)
        self._stop_signals = stop_signals
        self._signals = ExitStack()

    async def __aenter__(self) -> Self:
        from anyio import CancelScope

        self._lifecycle.enter()
        # Create it now, because this imports modules. Leaving must work without new
        # file descriptors.
        self._shield = CancelScope(shield=True)
        if self._stop_signals:
            self._signals.enter_context(self._lifecycle.stop_signals())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # In a cancelled scope, anyio would cancel each await, and no shard would be
        # released.
        with self._signals, self._shield:
            await self._lifecycle.end(error)

    @overload
    def consume(
        self, streams: Streams, **options: Unpack[ConsumeKeywords]
    ) -> Records: ...
    @overload
    def consume(
        self, streams: Streams, *, decode: UnionType, **options: Unpack[DecodeKeywords]
    ) -> Records[Any]: ...
    @overload
    def consume(
        self,
        streams: Streams,
        *,
        decode: AsyncDecode[V],
        **options: Unpack[DecodeKeywords],
    ) -> Records[V]: ...
    @overload
    def consume(
        self, streams: Streams, *, decode: Decode[V], **options: Unpack[DecodeKeywords]
    ) -> Records[V]: ...
    def consume(
        self,
        streams: StreamLike | Sequence[StreamLike],
        *,
        start: StartLike = Start.LATEST,
        until: UntilLike | None = None,
        decode: Any = None,
        on_decode_error: OnDecodeError = "raise",
        limit: int | None = None,
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
    ) -> Records[Any]:
        """Return the records of streams, given as names, ARNs or ``Stream`` objects.

        If the group has no positions for a stream, it begins to read the stream at
        ``start``: a Start, or a text such as ``"TRIM_HORIZON"`` or ``"2h"`` (see
        ``Start.parse()``). The client starts when the first record is requested. If it
        can't start, this request raises an error, such as StreamMissingError,
        StateStoreMissingError, AccessDeniedError or CredentialsError, and the next
        request tries again. The call itself raises ConfigurationError if an argument is
        wrong.

        ``decode`` is a type that the data is decoded as from JSON (a msgspec Struct, a
        dataclass, a Pydantic model, or another type that msgspec can decode), or a
        function of a record, which may be async. ``record.value`` is the result.

        ``on_decode_error`` says what happens to a record that cannot be decoded.
        "raise" raises DecodeError in place of the record. "skip" logs a warning, and
        marks the record as done. A function is called with the record and the error,
        and may be async. The record is done when the function returns.

        With ``until``, the iteration ends by itself, as a batch job does. It is "now",
        or an aware datetime. Records that arrive at this time or later are not read.
        The children of a split or merged shard are, if they have earlier records. The
        iteration ends when the group has done this for every shard, whichever client
        owns it. So give ``until`` to each client of the group. A stream with
        ``fan_out`` can't have it.

        After ``limit`` records, all loops over the result end. They are then done.

        ``on_assigned(shard)`` is called before the first record of a shard, and
        ``on_revoked(shard, reason)`` after the last one. Both may be async. A plain
        function runs on the event loop. An error of one ends the iteration.
        """
        checked, position, end = self._lifecycle.check(streams, start, until)
        delivery = self._new_delivery(
            clock=self._ports.clock,
            acks_by_asking=self.config.commit == "auto",
            policy=read_policy(decode, on_decode_error, self._ports.clock),
            limit=limit,
            history=self._ports.history,
        )
        delivery.until = end
        delivery.callbacks = read_callbacks(
            on_assigned, on_revoked, in_threads=not delivery.shares_loop
        )
        starter = self._lifecycle.prepare(delivery, checked, position)
        records: Records[Any] = self._new_records(delivery, starter)
        return records

    # The blocking client delivers to a thread instead.
    _new_delivery: Callable[..., DeliveryDriver] = RecordDelivery
    _new_records: Callable[..., Any] = Records

    @overload
    async def run(
        self, streams: Streams, handler: Handle[bytes], **options: Unpack[RunKeywords]
    ) -> None: ...
    @overload
    async def run(
        self,
        streams: Streams,
        handler: Handle[V],
        *,
        decode: Decode[V] | UnionType,
        **options: Unpack[RunKeywords],
    ) -> None: ...
    @overload
    async def run(
        self, streams: Handlers, *, decode: Any = ..., **options: Unpack[RunKeywords]
    ) -> None: ...
    async def run(
        self,
        streams: StreamLike | Sequence[StreamLike] | Handlers,
        handler: Handle[Any] | None = None,
        *,
        start: StartLike = Start.LATEST,
        until: UntilLike | None = None,
        batch: TakesBatches | None = None,
        concurrency: int = 1,
        on_failure: OnFailure | None = None,
        dead_letters: str | DeadLetterFunction | None = None,
        dead_letter_limit: float = DEFAULT_LIMIT,
        retries: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
        middleware: Sequence[Middleware] = (),
        traceparent: str | Traceparent | None = None,
        decode: Any = None,
        stop_signals: bool = False,
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
    ) -> None:
        """Call ``handler`` with each record or batch, until the client leaves.

        To give each stream its own handler, pass ``{stream: handler}`` as the only
        argument. A value is a function, or a ``Handler`` with its own options. The
        options below are then the defaults of all handlers.

        ``batch``, or the annotation of the handler's first parameter (``Record`` or
        ``Batch``), selects records or batches. Functions that aren't async run in
        threads. A record is done when the handler returns.

        A record that still fails after ``retries`` goes to ``dead_letters``:
        ``file:PATH``, ``sqs:URL``, ``kinesis:STREAM``, ``s3://BUCKET/PREFIX``, or an
        async function of a DeadLetter. ``on_failure`` may stop the shard or the client
        instead. Its default is "dead-letter" if ``dead_letters`` is given, else
        "stop-client". A failing batch is bisected to find the failing record.

        ``dead_letter_limit`` protects against an outage of what the handler calls: a
        shard whose dead letters outnumber the records handled since by this number
        stores no more of them. It keeps its lease, and the handler is called with the
        record again, with backoff, until a call succeeds. ``math.inf`` sets no limit.

        ``concurrency`` is the maximum number of parallel calls for one shard; the
        records of one partition key keep their order. ``traceparent`` says where a
        record holds its producer's W3C trace context: a path into JSON data, or a
        function that takes the record. ``stop_signals`` handles SIGTERM and SIGINT
        during the call, as the client's argument does while the client is open.

        The other options are those of ``consume()``; ``decode`` may also be ``{stream:
        decode}``. A record that cannot be decoded is treated like one that always
        fails. Plain functions as callbacks run in threads.

        Raises HandlerFailedError, DeadLetterNotStoredError, and what ``consume()``
        raises.
        """
        from kinesumer.handlers.handler import read_handlers
        from kinesumer.handlers.runner import HandlerRunner

        if self.config.commit == "manual":
            raise ConfigurationError(
                'run() acks records by itself: leave Config(commit="manual") out'
            )
        defaults: HandlerDefaults = {
            "batch": batch,
            "concurrency": concurrency,
            "on_failure": on_failure,
            "dead_letters": dead_letters,
            "dead_letter_limit": dead_letter_limit,
            "retries": retries,
            "middleware": middleware,
            "traceparent": traceparent,
            "decode": decode,
        }
        handlers = read_handlers(streams, handler, defaults)
        checked, position, end = self._lifecycle.check(handlers.streams, start, until)
        runner = HandlerRunner(
            handlers,
            app=self.app,
            clock=self._ports.clock,
            random=self._ports.random,
            drain=self.config.drain_timeout_seconds,
            callbacks=read_callbacks(on_assigned, on_revoked, in_threads=True),
            until=end,
            history=self._ports.history,
        )
        require_flag("stop_signals", stop_signals)
        with ExitStack() as signals:
            if stop_signals and not self._stop_signals:
                signals.enter_context(self._lifecycle.stop_signals())
            starter = self._lifecycle.prepare(runner, checked, position)
            await self._lifecycle.run(runner.run(starter))

    def ack(self, record: Record[Any] | Batch[Any]) -> None:
        """Acknowledge that a record or a batch is done (with ``commit="manual"`` only).

        Records may be acknowledged in any order. A shard's checkpoint is the last
        record before the first one that isn't done.
        """
        if self.config.commit != "manual":
            raise ConfigurationError(
                'ack() needs manual commits: set Config(commit="manual")'
            )
        self._lifecycle.ack(record)

    async def commit(self) -> None:
        """Store the positions of all done records before returning.

        Raises ShardsLostError if other clients own some of the shards by now. The error
        names these shards.
        """
        await self._lifecycle.running().commit()

    async def refresh(
        self, streams: StreamLike | Sequence[StreamLike] | Handlers
    ) -> None:
        """Consume these streams instead of the former ones.

        If ``run()`` has a handler for each stream, pass ``{stream: handler}`` to add
        streams. The handler of a stream can't be replaced. Raises ConfigurationError,
        and then consumes the former streams.
        """
        await self._lifecycle.refresh(streams)

    def assignment(self) -> dict[ShardKey, ShardAssignment]:
        """Return the shards that this client owns now, with their epochs and states.

        ``assignment()``, ``positions()`` and ``lag()`` read what the client has in
        memory, without a request to AWS. They return nothing before the start, while
        the client has no session, and after its end. Call them on the client's event
        loop.
        """
        return owned_report.report_assignment(self._lifecycle.owned_shards())

    def positions(self) -> dict[ShardKey, ShardPositions]:
        """Return the stored position and the done position of each owned shard."""
        return owned_report.report_positions(self._lifecycle.owned_shards())

    def lag(self) -> dict[ShardKey, ShardLag]:
        """Return how far this client is behind in each owned shard."""
        group = self._lifecycle.group
        queued = group.buffer.first_arrivals() if group else {}
        return owned_report.report_lag(
            self._lifecycle.owned_shards(), queued, self._ports.clock.wall()
        )

    async def pause(
        self, stream: str | None = None, shard: str | None = None, reason: str = ""
    ) -> None:
        """Pause a shard, a stream or everything for all clients of the app.

        ``stream`` is a name or an ARN, and ``shard`` is the id of one of its shards.
        The call returns when the pause is stored. Each owner of a paused shard waits
        until user code is done with its records, and releases the shard. The pause
        lasts until ``resume()``, even if all clients restart. ``reason`` is for
        operators. Raises ConfigurationError if the app doesn't know the stream or
        shard.
        """
        await pauses.pause(self._lifecycle.running().context, stream, shard, reason)

    async def resume(self, stream: str | None = None, shard: str | None = None) -> None:
        """End the pause of a shard, a stream or everything. Other pauses stay.

        Raises ConfigurationError if the app doesn't know the stream or shard.
        """
        await pauses.resume(self._lifecycle.running().context, stream, shard)

    async def leave(self) -> None:
        """Hand over all shards while still consuming, then end the iteration.

        Call it from another task than the one that iterates. ``stop_signals=True``
        calls it at SIGTERM and SIGINT. With this call, other clients take over in well
        under a second. Without it, they need some seconds.
        """
        await self._lifecycle.leave()
