"""OpenTelemetry's instruments for what ``telemetry`` names; one set a process."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from kinesumer.errors import SourceThrottledError, StoreThrottledError
from kinesumer.telemetry.api import (
    ACCOUNT,
    APP,
    BUFFERED_BYTES,
    COMMIT_DURATION,
    COMMIT_SPAN,
    CORRUPT_ROWS,
    CURRENT_LEASES,
    DATA_BYTES_PROCESSED,
    DEAD_LETTERS,
    HAND_OVER_DURATION,
    HAND_OVER_SPAN,
    HANDLE_RECORD_SPAN,
    HANDLE_SPAN,
    HANDLER_FAILURES,
    HEARTBEAT_DURATION,
    LEASES_TO_TAKE,
    LOST_LEASES,
    MILLIS_BEHIND_LATEST,
    NUM_WORKERS,
    RECORDS,
    RECORDS_OUTSIDE,
    RECORDS_PROCESSED,
    RECORDS_UNCOMMITTED,
    REGION,
    ROUND_DURATION,
    ROUND_SPAN,
    SECONDS,
    SERVICE,
    SHARDS,
    STREAM_NAME,
    THROTTLES,
    TOTAL_LEASES,
    Telemetry,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram
    from opentelemetry.trace import Link

    from kinesumer.ports import Clock
    from kinesumer.telemetry.api import Attributes, ClientState


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation
    from opentelemetry.trace import Tracer

    from kinesumer.telemetry.api import Attributes, ClientState

    Read = Callable[["ClientState"], Iterable[tuple[str, int | None]]]


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


MOST_LINKS = 128
"""OpenTelemetry's limit of links a span."""


LONGEST_TRACEPARENT = 512
"""Characters: a header has 55, and a later version's may have more."""


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

    # It is a producer's: OpenTelemetry's expression takes seconds for long spaces in
    # some versions, and others log each one.
    if len(traceparent) > LONGEST_TRACEPARENT:
        return NewContext()
    carrier = {"traceparent": traceparent}
    return TraceContextTextMapPropagator().extract(carrier, NewContext())
