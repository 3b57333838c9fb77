"""Make the requests of a producer, and count what they put."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesumer.errors import (
    RecordRefusedError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.runtime.secrets import SECRETS
from kinesumer.wire.put_records import refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.model.streams import StreamInfo
    from kinesumer.producer.pending import PendingRecord
    from kinesumer.producer.put_stream import PutStream
    from kinesumer.telemetry.api import Telemetry
    from kinesumer.wire.put_records import EntryResult

THROTTLED = "ProvisionedThroughputExceededException"


class PutCounts(NamedTuple):
    """The numbers of records, bytes and requests that a producer has sent."""

    rows: int = 0
    records: int = 0
    bytes: int = 0
    requests: int = 0
    retried: int = 0  # number of times that a record was sent again


class Outcome(NamedTuple):
    """What a request has put."""

    accepted: list[tuple[PendingRecord, EntryResult]]
    failed: list[PendingRecord]  # the records to send again
    reason: str  # the reason of the last failure


class PutRequests:
    """Makes requests to one stream. Counts for the caller, and for telemetry."""

    def __init__(self, stream: PutStream, telemetry: Telemetry) -> None:
        self.counts: PutCounts = PutCounts()
        self._stream, self._telemetry = stream, telemetry
        self._arn = stream.info.arn

    async def put(self, records: list[PendingRecord]) -> Outcome:
        """Put records once.

        Raise RecordRefusedError if Kinesis refuses one of the records, and thus all.
        """
        try:
            with self._telemetry.measure("put", self._arn):
                entries = [record.encode() for record in records]
                results = await self._stream.put_records(entries)
        except RecordRefusedError:
            self._count([], 0)
            raise
        except SourceUnavailableError as error:
            self._count([], len(records))
            if isinstance(error, SourceThrottledError):
                self._count_throttle()
            return Outcome([], records, str(error))
        failed, accepted = [], []
        reason = ""
        for record, result in zip(records, results, strict=True):
            if result.error_code is None:
                accepted.append((record, result))
            else:
                failed.append(record)
                said = SECRETS.redact(result.error_message or "")
                reason = f"{result.error_code}: {said}"
        self._count([record for record, _ in accepted], len(failed))
        if reason.startswith(THROTTLED):
            self._count_throttle()
        return Outcome(accepted, failed, reason)

    def take_back(self, rows: int) -> None:
        """Note that accepted user records have to be put again."""
        counts = self.counts
        self.counts = counts._replace(
            rows=counts.rows - rows, retried=counts.retried + rows
        )

    def _count(self, accepted: Sequence[PendingRecord], failed: int) -> None:
        counts = self.counts
        rows = sum(record.rows for record in accepted)
        size = sum(record.encode().size for record in accepted)
        self.counts = PutCounts(
            counts.rows + rows,
            counts.records + len(accepted),
            counts.bytes + size,
            counts.requests + 1,
            counts.retried + failed,
        )
        if accepted:
            self._telemetry.count("records_put", self._arn, rows)
            self._telemetry.count("data_bytes_put", self._arn, size)
        if failed:
            self._telemetry.count("put_retries", self._arn, failed)

    def _count_throttle(self) -> None:
        self._telemetry.count("throttles", self._arn, service="kinesis")


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
