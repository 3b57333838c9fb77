"""Every metric and span, by name: what is measured, in which unit, and with what.

Only OpenTelemetry's API is used, loaded when a client starts; without an SDK it does
nothing. Where users of the KCL know a metric, it has the KCL's name in snake case.
Attributes are the app and the stream (name, region, account), or the service that
throttles: never a shard, a record or a client. What tells processes apart is the SDK's
resource.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

# --- counters, bumped once per batch or page ------------------------------------

RECORDS_PROCESSED = "kinesumer.records_processed"
"""{record}: user records that user code was given (KCL: RecordsProcessed)."""
DATA_BYTES_PROCESSED = "kinesumer.data_bytes_processed"
"""By: the data of those records, without keys (KCL: DataBytesProcessed)."""
RECORDS_OUTSIDE = "kinesumer.records_outside_hash_range"
"""{record}: records of KPL aggregates whose hash key lies outside the shard's range.
They are delivered; streams that distribute by AUTO and reshards make them normal."""
LOST_LEASES = "kinesumer.lost_leases"
"""{shard}: shards that another client took, or that died with the session (KCL:
LostLeases)."""
THROTTLES = "kinesumer.throttles"
"""{request}: requests that AWS throttled, by service: dynamodb or kinesis."""
CORRUPT_ROWS = "kinesumer.corrupt_rows"
"""{row}: rows of the state store that couldn't be read, each time one was met. What
they are about stands still until they are mended; the log names them."""

HANDLER_FAILURES = "kinesumer.handler_failures"
"""{call}: calls of a handler given to ``run()`` that raised; most are repeated."""
DEAD_LETTERS = "kinesumer.dead_letters"
"""{record}: records that no call could handle and that were stored as dead letters."""

# --- durations ------------------------------------------------------------------

ROUND_DURATION = "kinesumer.round.duration"
"""s: one round: reading the rows in one's range, deciding, claiming."""
HAND_OVER_DURATION = "kinesumer.hand_over.duration"
"""s: giving a shard to another client: from the end of reading over what is in user
code to the stored release, after which the other may claim."""
COMMIT_DURATION = "kinesumer.commit.duration"
"""s: storing one shard's position, as far as it was answered."""
HEARTBEAT_DURATION = "kinesumer.coordination.heartbeat.duration"
"""s: one heartbeat, as far as it was answered; near three quarters of
``lease_duration_seconds`` delivery is about to pause."""

# --- gauges, read when they are collected ---------------------------------------

MILLIS_BEHIND_LATEST = "kinesumer.millis_behind_latest"
"""ms: lag of the stream's shard that is furthest behind, as last read (KCL:
MillisBehindLatest)."""
CURRENT_LEASES = "kinesumer.current_leases"
"""{shard}: shards that this process owns (KCL: CurrentLeases)."""
LEASES_TO_TAKE = "kinesumer.leases_to_take"
"""{shard}: shards in this process's range that it doesn't own yet (KCL:
LeasesToTake). More than zero for long: somebody doesn't let go."""
TOTAL_LEASES = "kinesumer.total_leases"
"""{shard}: all shards to consume, at most a minute old; told by the leader only (KCL:
TotalLeases)."""
NUM_WORKERS = "kinesumer.num_workers"
"""{client}: live clients of the app; told by the leader only (KCL: NumWorkers)."""
BUFFERED_BYTES = "kinesumer.buffered_bytes"
"""By: memory taken of ``buffer_bytes``: fetched records, and room for pages on their
way."""
RECORDS_UNCOMMITTED = "kinesumer.records_uncommitted"
"""{record}: delivered records without a stored position: what a crash repeats."""

# --- spans ----------------------------------------------------------------------

ROUND_SPAN = "kinesumer.round"
"""One round, as in ROUND_DURATION."""
HAND_OVER_SPAN = "kinesumer.hand_over"
"""One shard given up, as in HAND_OVER_DURATION."""
COMMIT_SPAN = "kinesumer.commit"
"""The positions of all shards that are due, with their number."""
HANDLE_SPAN = "kinesumer.handle"
"""User code at a batch, or at records of a batch one after the other (``run()`` only).
At a batch it is linked to what its records' producers did, as far as ``traceparent``
tells."""
HANDLE_RECORD_SPAN = "kinesumer.handle_record"
"""User code at a record whose producer is known by ``traceparent``: a child of the
producer's span, linked to HANDLE_SPAN."""

# --- attributes -----------------------------------------------------------------

APP = "kinesumer.app"
STREAM_NAME = "aws.kinesis.stream_name"
REGION = "cloud.region"
ACCOUNT = "cloud.account.id"
SERVICE = "kinesumer.service"
SHARDS = "kinesumer.shards"
RECORDS = "kinesumer.records"

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Buckets of the durations: from one quick request to ``drain_timeout_seconds``."""

Attributes = dict[str, str]


class StreamState(NamedTuple):
    """One stream in one client, at the moment of collection."""

    arn: str
    current_leases: int
    leases_to_take: int
    total_leases: int | None
    """None: this client doesn't lead."""
    millis_behind: int | None
    """None: nothing was read yet."""
    uncommitted: int


class ClientState(NamedTuple):
    """One client at the moment of collection."""

    app: str
    buffered_bytes: int
    num_workers: int | None
    """None: this client doesn't lead."""
    streams: tuple[StreamState, ...]


class Telemetry:
    """What the engine tells. This one listens to nothing: for tests and simulations."""

    def processed(self, stream_arn: str, records: int, data_bytes: int) -> None:
        """Count records that user code is through with, or was given."""

    def outside(self, stream_arn: str, records: int) -> None:
        """Count records outside their shard's hash range."""

    def lost_lease(self, stream_arn: str) -> None:
        """Count a shard that was lost."""

    def failed(self, error: Exception) -> None:
        """Count a failed call to AWS, if it was throttled."""

    def corrupt_row(self) -> None:
        """Count a row that couldn't be read."""

    def round(self) -> AbstractContextManager[object]:
        """Measure and trace a round."""
        return nullcontext()

    def hand_over(self, stream_arn: str) -> AbstractContextManager[object]:
        """Measure and trace a shard's release to another client."""
        return nullcontext()

    def commits(self, shards: int) -> AbstractContextManager[object]:
        """Trace the commits of some shards."""
        return nullcontext()

    def commit(self, stream_arn: str) -> AbstractContextManager[object]:
        """Measure one shard's commit, if it is answered."""
        return nullcontext()

    def heartbeat(self) -> AbstractContextManager[object]:
        """Measure a heartbeat, if it is answered."""
        return nullcontext()

    def handler_failed(self, stream_arn: str) -> None:
        """Count a call of a handler that raised."""

    def buried(self, stream_arn: str) -> None:
        """Count a record that was stored as a dead letter."""

    def handle(
        self, stream_arn: str, records: int, traceparents: Iterable[str] = ()
    ) -> AbstractContextManager[object]:
        """Trace user code at some records; link it to their producers."""
        return nullcontext()

    def handle_record(
        self, stream_arn: str, traceparent: str
    ) -> AbstractContextManager[object]:
        """Trace user code at one record, as a part of what its producer did."""
        return nullcontext()
