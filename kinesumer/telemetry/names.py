"""Names of metrics, spans and attributes.

A metric that the KCL has too bears the KCL's name in snake case. Attributes are the app
and the stream (name, region, account), or the service that throttles. No attribute
names a shard, a record or a client. The SDK's resource tells processes apart.
"""

from __future__ import annotations

# --- counters, increased once per batch or page ---------------------------------

RECORDS_PROCESSED = "kinesumer.records_processed"
"""{record}: user records that user code received (KCL: RecordsProcessed)."""
DATA_BYTES_PROCESSED = "kinesumer.data_bytes_processed"
"""By: the data of those records, without keys (KCL: DataBytesProcessed)."""
RECORDS_OUTSIDE = "kinesumer.records_outside_hash_range"
"""{record}: records of KPL aggregates whose hash key lies outside the shard's range.
They are delivered. Streams that distribute by AUTO and reshards cause them normally."""
LOST_LEASES = "kinesumer.lost_leases"
"""{shard}: shards that another client took, or that were lost with the session (KCL:
LostLeases)."""
THROTTLES = "kinesumer.throttles"
"""{request}: requests that AWS throttled, by service: dynamodb or kinesis."""
CORRUPT_ROWS = "kinesumer.corrupt_rows"
"""{row}: unreadable rows of the state store, counted at each read. The log names them.
The stream or shard of such a row makes no progress until the row is repaired."""
HANDLER_FAILURES = "kinesumer.handler_failures"
"""{call}: calls of a ``run()`` handler that raised. Most are retried."""
DEAD_LETTERS = "kinesumer.dead_letters"
"""{record}: records that were stored as dead letters."""

# --- durations ------------------------------------------------------------------

ROUND_DURATION = "kinesumer.round.duration"
"""s: one round: reading the rows in one's range, deciding, claiming."""
HAND_OVER_DURATION = "kinesumer.hand_over.duration"
"""s: handing over a shard to another client, from the end of reading to the stored
release. It includes waiting for user code. After the release the other may claim."""
COMMIT_DURATION = "kinesumer.commit.duration"
"""s: storing one shard's position. Failed requests aren't measured."""
HEARTBEAT_DURATION = "kinesumer.coordination.heartbeat.duration"
"""s: one heartbeat. Failed requests aren't measured. Delivery is about to pause at
three quarters of ``lease_duration_seconds``."""

# --- gauges, read when they are collected ---------------------------------------

MILLIS_BEHIND_LATEST = "kinesumer.millis_behind_latest"
"""ms: lag of the stream's shard that is furthest behind, as last read (KCL:
MillisBehindLatest)."""
CURRENT_LEASES = "kinesumer.current_leases"
"""{shard}: shards that this process owns (KCL: CurrentLeases)."""
LEASES_TO_TAKE = "kinesumer.leases_to_take"
"""{shard}: shards in this process's range that it doesn't own yet (KCL: LeasesToTake).
If it stays above zero, another client doesn't release its shards."""
TOTAL_LEASES = "kinesumer.total_leases"
"""{shard}: all shards to consume, at most a minute old. Only the leader reports it
(KCL: TotalLeases)."""
NUM_WORKERS = "kinesumer.num_workers"
"""{client}: live clients of the app. Only the leader reports it (KCL: NumWorkers)."""
BUFFERED_BYTES = "kinesumer.buffered_bytes"
"""By: used part of ``buffer_bytes``: fetched records, and memory reserved for pages
that are being fetched."""
RECORDS_UNCOMMITTED = "kinesumer.records_uncommitted"
"""{record}: delivered records without a stored position. A crash repeats them."""

# --- spans ----------------------------------------------------------------------

ROUND_SPAN = "kinesumer.round"
"""One round, as in ROUND_DURATION."""
HAND_OVER_SPAN = "kinesumer.hand_over"
"""Handing over one shard, as in HAND_OVER_DURATION."""
COMMIT_SPAN = "kinesumer.commit"
"""Storing the positions of all shards that are due, with their number."""
HANDLE_SPAN = "kinesumer.handle"
"""A handler's calls for some records of a batch (``run()`` only). The span of a batch
call links to the producers' spans that ``traceparent`` names."""
HANDLE_RECORD_SPAN = "kinesumer.handle_record"
"""A handler's call for one record whose ``traceparent`` is known: a child of the
producer's span, linked to HANDLE_SPAN."""

# --- attributes -----------------------------------------------------------------

APP = "kinesumer.app"
STREAM_NAME = "aws.kinesis.stream_name"
REGION = "cloud.region"
ACCOUNT = "cloud.account.id"
SERVICE = "kinesumer.service"
SHARDS = "kinesumer.shards"
RECORDS = "kinesumer.records"
