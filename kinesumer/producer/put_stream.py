"""The stream of a producer: what it takes, the requests to it, and their waits."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple, Protocol, TypeVar

from kinesumer.core.backoff import CALL_BACKOFF, DESCRIBE_SECONDS
from kinesumer.errors import (
    ConfigurationError,
    RecordRefusedError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.model.streams import Shard, StreamInfo, stream_name
from kinesumer.producer.pending import PendingRecord, to_entry
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.text import SECRETS
from kinesumer.telemetry.api import Telemetry
from kinesumer.wire.put_records import Entry, EntryResult, refusal


class PutTarget(Protocol):
    """The calls that a producer makes. ``KinesisSource`` provides them."""

    async def describe(self) -> StreamInfo:
        """Return the stream's present description."""

    async def list_shards(self) -> Sequence[Shard]:
        """Return all shards."""

    async def put_records(self, records: Sequence[Entry]) -> Sequence[EntryResult]:
        """Put records. Raise RecordRefusedError if one of them is invalid."""


THROTTLED = "ProvisionedThroughputExceededException"


class PutCounts(NamedTuple):
    """The numbers of records, bytes and requests that a producer has sent."""

    rows: int = 0
    records: int = 0
    bytes: int = 0
    requests: int = 0
    retried: int = 0  # number of times that a record was sent again


class Outcome(NamedTuple):
    """The records that a request has put."""

    accepted: list[tuple[PendingRecord, EntryResult]]
    failed: list[PendingRecord]  # the records to send again
    reason: str  # the reason of the last failure


class PutStream:
    """A stream to put records into, with its latest description.

    The largest record and the strategy by which records are distributed may change at
    any time. ``by_key`` names the producer's options that AUTO makes void. Requests are
    counted for the caller, and for telemetry.
    """

    def __init__(
        self,
        target: PutTarget,
        info: StreamInfo,
        patience: Patience,
        by_key: Sequence[str],
        telemetry: Telemetry,
    ) -> None:
        self.info: StreamInfo = info
        self.counts: PutCounts = PutCounts()
        self._target, self._patience, self._by_key = target, patience, by_key
        self._telemetry = telemetry
        # The caller may have read the given description a while ago.
        self._read_at = -math.inf
        self._reading = asyncio.Lock()
        self._now = asyncio.get_running_loop().time
        self._warn()

    async def reread(self, since: float) -> StreamInfo:
        """Return the description as it was read at ``since``, or later.

        Raise SourceUnavailableError if Kinesis is unavailable for too long.
        """
        async with self._reading:
            if self._read_at < since:
                read_at = self._now()
                self.info = await self._patience.until_available(self._target.describe)
                self._read_at = read_at
                self._warn()
            return self.info

    async def list_shards(self) -> Sequence[Shard]:
        """Return all shards. Raise errors as ``reread()`` does."""
        return await self._patience.until_available(self._target.list_shards)

    async def refusal(self, entry: Entry) -> str | None:
        """Return why the stream refuses a record at present, or None if it takes it."""
        if refusal(entry, self.info) is None:
            return None
        return refusal(entry, await self.reread(self._now() - DESCRIBE_SECONDS))

    async def require_taken(
        self, data: bytes, key: str | None, hash_key: str | None
    ) -> Entry:
        """Return a record that the stream takes now. Raise ConfigurationError."""
        entry = to_entry(data, key, hash_key)
        if (reason := await self.refusal(entry)) is not None:
            raise ConfigurationError(
                f"Kinesis would reject this record: {reason}; correct the arguments"
            )
        return entry

    def _warn(self) -> None:
        if self._by_key and not self.info.routes_by_key:
            _warn_of_auto(self.info.arn, " and ".join(self._by_key))

    # --- requests ---------------------------------------------------------------------

    async def put(self, records: list[PendingRecord]) -> Outcome:
        """Put records once.

        Raise RecordRefusedError if Kinesis refuses one of the records, and thus all.
        """
        try:
            with self._telemetry.trace_put(
                self.info.arn, sum(record.rows for record in records), _origins(records)
            ):
                entries = [record.encode() for record in records]
                results = await self._target.put_records(entries)
        except RecordRefusedError as error:
            self._count(0)
            self._count_unsent(records, type(error).__name__)
            raise
        except SourceUnavailableError as error:
            self._patience.note_failure(error)
            self._count(len(records))
            self._count_unsent(records, type(error).__name__)
            if isinstance(error, SourceThrottledError):
                self._count_throttle()
            return Outcome([], records, str(error))
        failed, accepted = [], []
        reason = ""
        rows = size = 0
        for record, result in zip(records, results, strict=True):
            if result.error_code is None:
                accepted.append((record, result))
                rows += record.rows
                size += record.size
            else:
                failed.append(record)
                self._count_unsent([record], result.error_code)
                said = SECRETS.redact(result.error_message or "")
                reason = f"{result.error_code}: {said}"
        self._count(len(failed), len(accepted), rows, size)
        if reason.startswith(THROTTLED):
            self._count_throttle()
        return Outcome(accepted, failed, reason)

    def take_back(self, rows: int) -> None:
        """Note that accepted user records have to be put again."""
        counts = self.counts
        self.counts = counts._replace(
            rows=counts.rows - rows, retried=counts.retried + rows
        )

    def _count(
        self, failed: int, accepted: int = 0, rows: int = 0, size: int = 0
    ) -> None:
        """Count a request, with the Kinesis records that failed and were accepted."""
        counts = self.counts
        self.counts = PutCounts(
            counts.rows + rows,
            counts.records + accepted,
            counts.bytes + size,
            counts.requests + 1,
            counts.retried + failed,
        )
        if accepted:
            self._telemetry.count("sent_messages", self.info.arn, rows)
            self._telemetry.count("data_bytes_put", self.info.arn, size)
        if failed:
            self._telemetry.count("put_retries", self.info.arn, failed)

    def _count_unsent(self, records: Sequence[PendingRecord], why: str) -> None:
        """Count the user records of a request that Kinesis has not accepted."""
        rows = sum(record.rows for record in records)
        arn = self.info.arn
        self._telemetry.count("sent_messages", arn, rows, error_type=why)

    def _count_throttle(self) -> None:
        self._telemetry.count("throttles", self.info.arn, service="kinesis")


def _origins(records: Iterable[PendingRecord]) -> Iterator[str]:
    """Yield the traceparents of the records of a request."""
    for record in records:
        yield from (record.traceparents or {}).values()


@cache
def _warn_of_auto(arn: str, options: str) -> None:
    """Log each stream only once, since Spark makes a producer for each task."""
    logger.warning(
        "stream %s distributes records by AUTO, without regard to their keys: the "
        "producer's %s has no effect",
        stream_name(arn),
        options,
        extra={"stream": stream_name(arn)},
    )


T = TypeVar("T")

# Chosen: most reshards and outages are over sooner. Config's default of
# ``max_processing_seconds`` is as long.
GIVE_UP_SECONDS = 300.0


class Patience:
    """The waits of one producer, and the time since which Kinesis accepts nothing.

    With ``waits_for_credentials``, only time with valid credentials counts.
    """

    def __init__(
        self,
        chance: random.Random,
        give_up_seconds: float,
        *,
        waits_for_credentials: bool = False,
    ) -> None:
        self._chance, self._give_up_seconds = chance, give_up_seconds
        self._waits_for_credentials = waits_for_credentials
        self._now = asyncio.get_running_loop().time
        self._last_accepted_at = self._now()

    def note_progress(self) -> None:
        """Note that Kinesis has accepted a record, or that nothing waits for it."""
        self._last_accepted_at = self._now()

    def note_failure(self, error: SourceUnavailableError) -> None:
        """Note that an attempt has failed."""
        if self._waits_for_credentials and error.lacks_credentials:
            self.note_progress()

    def require_progress(self, began: float, reason: str) -> None:
        """Raise SourceUnavailableError if Kinesis has accepted nothing for too long.

        ``began`` is the time of the first attempt, and ``reason`` is the last failure.
        """
        idle = self._now() - max(began, self._last_accepted_at)
        if idle > self._give_up_seconds:
            raise SourceUnavailableError(
                f"Kinesis has accepted no record for {idle:.0f} s, most recently "
                f"because of {reason}; does the stream have enough shards?"
            )

    async def until_available(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call and return its result. Try again while Kinesis is unavailable."""
        began, failures = self._now(), 0
        while True:
            try:
                return await call()
            except SourceUnavailableError as error:
                self.note_failure(error)
                self.require_progress(began, str(error))
                failures += 1
                await self.back_off(failures)

    async def back_off(self, failures: int) -> None:
        """Wait before the next attempt."""
        jitter = self._chance.random()
        await asyncio.sleep(CALL_BACKOFF.wait_seconds(failures, jitter))


def find_refused(
    records: Sequence[PendingRecord], info: StreamInfo, error: RecordRefusedError
) -> dict[PendingRecord, RecordRefusedError]:
    """Return the records of a refused request that are known to be the cause.

    The stream's description tells the cause, except of a record that was alone.
    """
    if len(records) == 1:
        only = records[0]
        return {only: _error_of(only, info) or error}
    found = ((record, _error_of(record, info)) for record in records)
    return {record: known for record, known in found if known is not None}


def _error_of(record: PendingRecord, info: StreamInfo) -> RecordRefusedError | None:
    reason = refusal(record.encode(), info)
    return None if reason is None else RecordRefusedError(reason)
