"""Every metric and span, by name: what is measured, in which unit, and with what.

Only OpenTelemetry's API is used, loaded when a client starts; without an SDK it does
nothing. Where users of the KCL know a metric, it has the KCL's name in snake case.
Attributes are the app and the stream (name, region, account), or the service that
throttles: never a shard, a record or a client. What tells processes apart is the SDK's
resource.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.errors import SourceThrottledError, StoreThrottledError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation
    from opentelemetry.trace import Link, Tracer

    from kinesumer.ports import Clock

    Read = Callable[["ClientState"], Iterable[tuple[str, int | None]]]

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
HEARTBEAT_DURATION = "kinesumer.heartbeat.duration"
"""s: one heartbeat, as far as it was answered; near three quarters of ``lease_seconds``
delivery is about to pause."""

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
"""Buckets of the durations: from one quick request to ``drain_timeout``."""

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


class OpenTelemetry(Telemetry):
    """Tells OpenTelemetry, and so whatever SDK the application has set up."""

    def __init__(
        self, app: str, clock: Clock, instruments: Instruments | None = None
    ) -> None:
        self._app: Attributes = {APP: app}
        self._clock = clock
        self._to = instruments or process_instruments()
        self._streams: dict[str, Attributes] = {}
        self._watched: Callable[[], ClientState] | None = None

    def watch(self, state: Callable[[], ClientState]) -> None:
        """Let gauges read a client's state, from the exporter's thread."""
        self._watched = state
        self._to.watched.append(state)

    def forget(self) -> None:
        """End what ``watch`` began."""
        if self._watched is not None:
            self._to.watched.remove(self._watched)
            self._watched = None

    def processed(self, stream_arn: str, records: int, data_bytes: int) -> None:
        """Count records that user code is through with, or was given."""
        attributes = self._of(stream_arn)
        self._to.records_processed.add(records, attributes)
        self._to.data_bytes_processed.add(data_bytes, attributes)

    def outside(self, stream_arn: str, records: int) -> None:
        """Count records outside their shard's hash range."""
        self._to.records_outside.add(records, self._of(stream_arn))

    def lost_lease(self, stream_arn: str) -> None:
        """Count a shard that was lost."""
        self._to.lost_leases.add(1, self._of(stream_arn))

    def failed(self, error: Exception) -> None:
        """Count a failed call to AWS, if it was throttled."""
        if isinstance(error, StoreThrottledError):
            self._to.throttles.add(1, {**self._app, SERVICE: "dynamodb"})
        elif isinstance(error, SourceThrottledError):
            self._to.throttles.add(1, {**self._app, SERVICE: "kinesis"})

    def corrupt_row(self) -> None:
        """Count a row that couldn't be read."""
        self._to.corrupt_rows.add(1, self._app)

    @contextmanager
    def round(self) -> Iterator[None]:
        """Measure and trace a round."""
        with (
            self._to.tracer.start_as_current_span(ROUND_SPAN, attributes=self._app),
            self._measured(self._to.round_duration, self._app),
        ):
            yield

    @contextmanager
    def hand_over(self, stream_arn: str) -> Iterator[None]:
        """Measure and trace a shard's release to another client."""
        attributes = self._of(stream_arn)
        with (
            self._to.tracer.start_as_current_span(
                HAND_OVER_SPAN, attributes=attributes
            ),
            self._measured(self._to.hand_over_duration, attributes),
        ):
            yield

    def commits(self, shards: int) -> AbstractContextManager[object]:
        """Trace the commits of some shards."""
        return self._to.tracer.start_as_current_span(
            COMMIT_SPAN, attributes={**self._app, SHARDS: shards}
        )

    def commit(self, stream_arn: str) -> AbstractContextManager[object]:
        """Measure one shard's commit, if it is answered."""
        return self._measured(self._to.commit_duration, self._of(stream_arn))

    def heartbeat(self) -> AbstractContextManager[object]:
        """Measure a heartbeat, if it is answered."""
        return self._measured(self._to.heartbeat_duration, self._app)

    def handler_failed(self, stream_arn: str) -> None:
        """Count a call of a handler that raised."""
        self._to.handler_failures.add(1, self._of(stream_arn))

    def buried(self, stream_arn: str) -> None:
        """Count a record that was stored as a dead letter."""
        self._to.dead_letters.add(1, self._of(stream_arn))

    def handle(
        self, stream_arn: str, records: int, traceparents: Iterable[str] = ()
    ) -> AbstractContextManager[object]:
        """Trace user code at some records; link it to their producers."""
        return self._to.tracer.start_as_current_span(
            HANDLE_SPAN,
            attributes={**self._of(stream_arn), RECORDS: records},
            links=links_to(traceparents),
        )

    def handle_record(
        self, stream_arn: str, traceparent: str
    ) -> AbstractContextManager[object]:
        """Trace user code at one record, as a part of what its producer did."""
        from opentelemetry import trace

        here = trace.get_current_span().get_span_context()
        return self._to.tracer.start_as_current_span(
            HANDLE_RECORD_SPAN,
            context=_producer(traceparent),
            attributes=self._of(stream_arn),
            links=[trace.Link(here)] if here.is_valid else (),
        )

    @contextmanager
    def _measured(self, to: Histogram, attributes: Attributes) -> Iterator[None]:
        started = self._clock.now()
        yield
        to.record(self._clock.now() - started, attributes)

    def _of(self, stream_arn: str) -> Attributes:
        known = self._streams.get(stream_arn)
        if known is None:
            known = self._app | stream_attributes(stream_arn)
            self._streams[stream_arn] = known
        return known


class Instruments:
    """All instruments of one meter and tracer; one set serves all clients."""

    def __init__(self, meter: Meter, tracer: Tracer) -> None:
        self.tracer = tracer
        self.watched: list[Callable[[], ClientState]] = []
        counter = meter.create_counter
        self.records_processed = counter(RECORDS_PROCESSED, "{record}")
        self.data_bytes_processed = counter(DATA_BYTES_PROCESSED, "By")
        self.records_outside = counter(RECORDS_OUTSIDE, "{record}")
        self.lost_leases = counter(LOST_LEASES, "{shard}")
        self.throttles = counter(THROTTLES, "{request}")
        self.corrupt_rows = counter(CORRUPT_ROWS, "{row}")
        self.handler_failures = counter(HANDLER_FAILURES, "{call}")
        self.dead_letters = counter(DEAD_LETTERS, "{record}")
        self.round_duration = _duration(meter, ROUND_DURATION)
        self.hand_over_duration = _duration(meter, HAND_OVER_DURATION)
        self.commit_duration = _duration(meter, COMMIT_DURATION)
        self.heartbeat_duration = _duration(meter, HEARTBEAT_DURATION)
        for name, (unit, read) in _GAUGES.items():
            meter.create_observable_gauge(name, [self._callback(name, read)], unit)

    def _callback(
        self, name: str, read: Read
    ) -> Callable[[CallbackOptions], list[Observation]]:
        from opentelemetry.metrics import Observation

        # Clients of one process look alike: the worst lag counts, the rest adds up.
        merge = max if name == MILLIS_BEHIND_LATEST else _add

        def observe(_: CallbackOptions) -> list[Observation]:
            merged: dict[tuple[str, str], int] = {}
            for client in [state() for state in self.watched]:
                for arn, value in read(client):
                    if value is not None:
                        at = client.app, arn
                        merged[at] = merge(merged[at], value) if at in merged else value
            return [
                Observation(value, {APP: app} | stream_attributes(arn))
                for (app, arn), value in merged.items()
            ]

        return observe


@cache
def process_instruments() -> Instruments:
    """Return those of the global providers: an SDK keeps one callback per name."""
    from opentelemetry import metrics, trace

    return Instruments(metrics.get_meter("kinesumer"), trace.get_tracer("kinesumer"))


MOST_LINKS = 128
"""OpenTelemetry's limit of links a span."""


def links_to(traceparents: Iterable[str]) -> list[Link]:
    """Return links to producers' spans, each once; what names none is left out."""
    from opentelemetry import trace

    links: list[Link] = []
    for traceparent in dict.fromkeys(traceparents):
        span = trace.get_current_span(_producer(traceparent))
        if span.get_span_context().is_valid and len(links) < MOST_LINKS:
            links.append(trace.Link(span.get_span_context()))
    return links


def _producer(traceparent: str) -> Context:
    """Return the context that a W3C traceparent header names; none if it names none."""
    from opentelemetry.context import Context as NewContext
    from opentelemetry.trace.propagation.tracecontext import (
        TraceContextTextMapPropagator,
    )

    carrier = {"traceparent": traceparent}
    return TraceContextTextMapPropagator().extract(carrier, NewContext())


def stream_attributes(arn: str) -> Attributes:
    """Return what tells a stream from others, of one name in another account too."""
    if not arn:
        return {}
    *_, region, account, resource = arn.split(":", 5)
    return {
        STREAM_NAME: resource.removeprefix("stream/"),
        REGION: region,
        ACCOUNT: account,
    }


def _per_stream(field: str) -> Read:
    return lambda client: [(s.arn, getattr(s, field)) for s in client.streams]


_GAUGES: Mapping[str, tuple[str, Read]] = {
    MILLIS_BEHIND_LATEST: ("ms", _per_stream("millis_behind")),
    CURRENT_LEASES: ("{shard}", _per_stream("current_leases")),
    LEASES_TO_TAKE: ("{shard}", _per_stream("leases_to_take")),
    TOTAL_LEASES: ("{shard}", _per_stream("total_leases")),
    RECORDS_UNCOMMITTED: ("{record}", _per_stream("uncommitted")),
    NUM_WORKERS: ("{client}", lambda client: [("", client.num_workers)]),
    BUFFERED_BYTES: ("By", lambda client: [("", client.buffered_bytes)]),
}


def _duration(meter: Meter, name: str) -> Histogram:
    return meter.create_histogram(
        name, "s", explicit_bucket_boundaries_advisory=SECONDS
    )


def _add(one: int, other: int) -> int:
    return one + other
