"""The producer through which an application puts records into a stream."""

from __future__ import annotations

import math
import random
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kinesumer.errors import (
    ConfigurationError,
    KinesumerError,
    PutFailedError,
    StreamMissingError,
)
from kinesumer.model.streams import Stream, StreamInfo
from kinesumer.model.validation import ForAsyncio, require_flag, require_text
from kinesumer.producer.pending import PutFuture, valid_entry
from kinesumer.producer.put_stream import GIVE_UP_SECONDS, PutCounts, PutTarget
from kinesumer.producer.record_producer import (
    LINGER_SECONDS,
    MAX_BUFFER_BYTES,
    RecordProducer,
)
from kinesumer.producer.trace_context import AddTraceparent, Traced, read_writer
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.failure_log import IncidentLog, logger
from kinesumer.runtime.tasks import CALL_RETRIES

if TYPE_CHECKING:
    # These imports are slow.
    from kinesumer.aws.session import ClientFactory
    from kinesumer.telemetry.otel import OpenTelemetry

# The longest wait for buffered records to be put, if an error has ended the block.
# Chosen: as long as the default of ``drain_timeout_seconds``.
ABORT_SECONDS = 30.0


class Producer(ForAsyncio):
    """Puts records into one stream: ``async with Producer("orders") as producer:``.

    ``stream`` is a name, an ARN, or a ``Stream`` with a role or a region. ``region``
    and ``session`` are those of ``Kinesumer``.

    ``aggregate`` packs many records of a shard into one Kinesis record, as the KPL
    does. This raises the number of small records per second about tenfold. All
    consumers of the stream must unpack them, as ``kinesumer`` and the KCL do.
    ``ordered`` keeps the order of each partition key: a record is sent after Kinesis
    has accepted the previous record of its key, or of its shard if ``aggregate`` is
    true. Both have no effect while the stream distributes records by AUTO.

    Records are sent in full requests, and after ``linger_seconds`` at the latest.
    Rejected records and requests without an answer are sent again. So a record may be
    put twice. If Kinesis accepts nothing for ``give_up_seconds``, or denies access, all
    records that wait fail. ``max_buffer_bytes`` limits the memory for records that wait
    or are under way; a record counts with its data, its partition key and 256 bytes.

    ``traceparent`` puts the W3C trace context of each ``put()`` into the record's data,
    where ``run(traceparent=...)`` finds it: at a path in JSON objects, such as
    ``headers.traceparent``, or by a function that takes the data and the text and
    returns the data. A text that is at the path already stays.

    Raise ConfigurationError for an argument that cannot work. Entering the block raises
    StreamMissingError, AccessDeniedError, CredentialsError and the like.
    """

    def __init__(
        self,
        stream: str | Stream,
        *,
        aggregate: bool = False,
        ordered: bool = False,
        region: str | None = None,
        session: object | None = None,
        max_buffer_bytes: int = MAX_BUFFER_BYTES,
        linger_seconds: float = LINGER_SECONDS,
        give_up_seconds: float = GIVE_UP_SECONDS,
        traceparent: str | AddTraceparent | None = None,
    ) -> None:
        if isinstance(stream, str):
            stream = Stream(stream)
        if not isinstance(stream, Stream):
            raise ConfigurationError(
                f"stream={stream!r} must be a stream's name, its ARN or a Stream"
            )
        for name, value, least in (
            ("max_buffer_bytes", max_buffer_bytes, 1),
            ("linger_seconds", linger_seconds, 0),
            ("give_up_seconds", give_up_seconds, 0),
        ):
            _check_number(name, value, least)
        require_flag("aggregate", aggregate)
        require_flag("ordered", ordered)
        if region is not None:
            require_text("region", region)
        self.stream = stream
        self._writer = read_writer(traceparent)
        self._region, self._session = region, session
        self._open = partial(
            open_record_producer,
            aggregate=aggregate,
            ordered=ordered,
            chance=random.Random(),
            max_buffer_bytes=max_buffer_bytes,
            linger_seconds=linger_seconds,
            give_up_seconds=give_up_seconds,
        )
        self._clients: ClientFactory | None = None
        self._telemetry: OpenTelemetry | None = None
        self._records: RecordProducer | None = None
        self._counts = PutCounts()

    async def __aenter__(self) -> Self:
        # These imports are slow, so they aren't made when the package is imported.
        from anyio import CancelScope

        from kinesumer.aws.kinesis import open_source
        from kinesumer.aws.session import ClientFactory
        from kinesumer.telemetry.otel import OpenTelemetry

        if self._clients is not None:
            raise ConfigurationError("a producer can be entered once: make a new one")
        # Create it now, because this imports modules. Leaving must work without new
        # file descriptors.
        self._shield = CancelScope(shield=True)
        incidents = IncidentLog(SystemClock())
        self._clients = ClientFactory(
            self._session,
            region=self._region,
            role_session_name="kinesumer-producer",
            on_trouble=incidents.note_credentials,
        )
        try:
            source = await open_source(self._clients, self.stream)
            info = await CALL_RETRIES.call(source.describe)
            self._telemetry = OpenTelemetry(None, SystemClock())
            records = await self._open(source, info, telemetry=self._telemetry)
        except BaseException:
            await self._clients.__aexit__(None, None, None)
            raise
        self._records = records
        self._telemetry.watch_producer(
            lambda: records.read_gauges()._replace(incidents=(*incidents.current(),))
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._close(None if error is None else ABORT_SECONDS)
        except PutFailedError as failure:
            if error is None:
                raise
            logger.error("%s: %s", self.stream.name, failure)

    async def _close(self, limit_seconds: float | None = None) -> None:
        """Put what waits, and close the connections. Raise PutFailedError.

        With a limit, no cancellation interrupts this, and what isn't put in time fails.
        A second call does nothing.
        """
        from anyio import move_on_after

        if self._records is None:
            return
        assert self._telemetry and self._clients
        records, is_flushed = self._records, False
        try:
            with move_on_after(limit_seconds) as scope:
                scope.shield = limit_seconds is not None
                await records.flush()
            is_flushed = True
        finally:
            self._telemetry.unwatch()
            self._records = None
            with self._shield:
                await records.abandon(_closed())
                await self._clients.__aexit__(None, None, None)
            self._counts = records.counts
            if not is_flushed:
                self._log_failures(records)
        # The limit may have been reached, or other tasks have put records meanwhile.
        records.raise_failures()

    def _log_failures(self, records: RecordProducer) -> None:
        try:
            records.raise_failures()
        except PutFailedError as failure:
            logger.error("%s: %s", self.stream.name, failure)

    async def put(
        self,
        data: bytes,
        *,
        partition_key: str | None = None,
        explicit_hash_key: str | None = None,
    ) -> PutFuture:
        """Accept a record when the buffer has room for it. Return its future result.

        ``await producer.put(…)`` is enough for high throughput. To wait until Kinesis
        has stored the record, await the future, too. ``partition_key`` has 1 to 256
        characters; only a stream that distributes records by AUTO needs none.
        ``explicit_hash_key`` is a decimal number below 2^128 that selects the shard in
        place of the partition key.

        Raise ConfigurationError for a record that the stream would reject. To be sure,
        the stream is described again, at most once a second; this may raise the errors
        of entering the block. Raise PutFailedError if earlier records have failed and
        no task awaits their futures. In all these cases, and if the call is cancelled,
        the record isn't accepted.
        """
        records = self._opened()
        stream = records.stream
        data, origin = self._traced(data)
        given = data, partition_key, explicit_hash_key
        entry = valid_entry(*given, stream.info)
        if entry is None:
            entry = await stream.require_taken(*given)
        return await records.add(entry, origin)

    def _traced(self, data: bytes) -> Traced:
        """Return data with the present trace context, if that is wanted."""
        if self._writer is None or self._telemetry is None:
            return Traced(data, "")
        create, arn = self._telemetry.create_message, self._opened().stream_arn
        return self._writer.write(data, lambda: create(arn))

    def _opened(self) -> RecordProducer:
        if self._records is None:
            raise _closed()
        return self._records

    async def flush(self) -> None:
        """Send what waits, and wait until Kinesis has accepted each earlier record.

        Raise PutFailedError for failed records whose futures no task awaits.
        """
        await self._opened().flush()

    @property
    def counts(self) -> PutCounts:
        """The numbers of records, bytes and requests so far."""
        return self._counts if self._records is None else self._records.counts


async def open_record_producer(
    target: PutTarget, info: StreamInfo, *, aggregate: bool, **options: Any
) -> RecordProducer:
    """Return a producer for a stream. ``info`` is the stream's description.

    The other options are those of ``RecordProducer``.

    Raise StreamMissingError if the stream is being deleted, and KinesumerError if it is
    being created.
    """
    if info.status == "DELETING":
        raise StreamMissingError(
            f"stream {info.arn} is being deleted: create it again, or name another"
        )
    if info.status == "CREATING":
        raise KinesumerError(
            f"stream {info.arn} is being created; wait until it is active"
        )
    shards = None
    if aggregate:
        shards = (
            await CALL_RETRIES.call(target.list_shards) if info.routes_by_key else []
        )
    return RecordProducer(target, info, shards=shards, **options)


def _check_number(name: str, value: object, least: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value < math.inf:  # type: ignore[operator]
        raise ConfigurationError(
            f"{name}={value!r} must be a number of at least {least:g}"
        )


def _closed() -> ConfigurationError:
    return ConfigurationError("use the producer in `async with Producer(...)`")
