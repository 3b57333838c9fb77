"""Telemetry by OpenTelemetry's API, with one set of instruments per process."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING

from kinesumer.telemetry.api import Telemetry
from kinesumer.telemetry.names import (
    ACCOUNT,
    APP,
    BUFFERED_BYTES,
    COMMIT_DURATION,
    CORRUPT_ROWS,
    CURRENT_LEASES,
    DATA_BYTES_PROCESSED,
    DEAD_LETTERS,
    HAND_OVER_DURATION,
    HAND_OVER_SPAN,
    HANDLE_RECORD_SPAN,
    HANDLER_FAILURES,
    HEARTBEAT_DURATION,
    LEASES_TO_TAKE,
    LOST_LEASES,
    MILLIS_BEHIND_LATEST,
    NUM_WORKERS,
    RECORDS_OUTSIDE,
    RECORDS_PROCESSED,
    RECORDS_UNCOMMITTED,
    REGION,
    ROUND_DURATION,
    ROUND_SPAN,
    SERVICE,
    STREAM_NAME,
    THROTTLES,
    TOTAL_LEASES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from opentelemetry.trace import Link, Tracer

    from kinesumer.ports import Clock
    from kinesumer.telemetry.api import ClientState

    Attributes = dict[str, str]
    ReadGauge = Callable[[ClientState], Iterable[tuple[str, int | None]]]

MAX_LINKS = 128
"""OpenTelemetry's limit of links per span."""
MAX_TRACEPARENT_CHARACTERS = 512
"""A header has 55. A later version's may have more."""

_COUNTERS = {
    RECORDS_PROCESSED: "{record}",
    DATA_BYTES_PROCESSED: "By",
    RECORDS_OUTSIDE: "{record}",
    LOST_LEASES: "{shard}",
    THROTTLES: "{request}",
    CORRUPT_ROWS: "{row}",
    HANDLER_FAILURES: "{call}",
    DEAD_LETTERS: "{record}",
}

_DURATIONS = {
    ROUND_DURATION: ROUND_SPAN,
    HAND_OVER_DURATION: HAND_OVER_SPAN,
    COMMIT_DURATION: None,
    HEARTBEAT_DURATION: None,
}
"""The span that each duration has, if any."""

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds, from one quick request to ``drain_timeout_seconds``."""


def _per_stream(field: str) -> ReadGauge:
    return lambda client: [(s.arn, getattr(s, field)) for s in client.streams]


_GAUGES: Mapping[str, tuple[str, ReadGauge]] = {
    MILLIS_BEHIND_LATEST: ("ms", _per_stream("millis_behind")),
    CURRENT_LEASES: ("{shard}", _per_stream("current_leases")),
    LEASES_TO_TAKE: ("{shard}", _per_stream("leases_to_take")),
    TOTAL_LEASES: ("{shard}", _per_stream("total_leases")),
    RECORDS_UNCOMMITTED: ("{record}", _per_stream("uncommitted")),
    NUM_WORKERS: ("{client}", lambda client: [("", client.num_workers)]),
    BUFFERED_BYTES: ("By", lambda client: [("", client.buffered_bytes)]),
}


class Instruments:
    """All instruments of one meter and tracer, shared by all clients of a process."""

    def __init__(self, meter: Meter, tracer: Tracer) -> None:
        self.tracer = tracer
        self.clients: list[Callable[[], ClientState]] = []
        self.counters = {
            name: meter.create_counter(name, unit) for name, unit in _COUNTERS.items()
        }
        self.durations = {
            name: meter.create_histogram(
                name, "s", explicit_bucket_boundaries_advisory=_BUCKETS
            )
            for name in _DURATIONS
        }
        for name, (unit, read) in _GAUGES.items():
            meter.create_observable_gauge(name, [self._callback(name, read)], unit)

    def _callback(
        self, name: str, read: ReadGauge
    ) -> Callable[[CallbackOptions], list[Observation]]:
        from opentelemetry.metrics import Observation

        def observe(_: CallbackOptions) -> list[Observation]:
            # Attributes don't tell the clients of one process apart: values add up,
            # except for the lag, where the greatest counts.
            merged: dict[tuple[str, str], int] = {}
            for client in [state() for state in self.clients]:
                for arn, value in read(client):
                    if value is not None:
                        key = client.app, arn
                        other = merged.get(key, 0)
                        is_lag = name == MILLIS_BEHIND_LATEST
                        merged[key] = max(other, value) if is_lag else other + value
            return [
                Observation(value, {APP: app} | stream_attributes(arn))
                for (app, arn), value in merged.items()
            ]

        return observe


@cache
def process_instruments() -> Instruments:
    """Return the instruments of the global providers.

    They are created once, since an SDK keeps one callback per name.
    """
    from opentelemetry import metrics, trace

    return Instruments(metrics.get_meter("kinesumer"), trace.get_tracer("kinesumer"))


def stream_attributes(arn: str) -> Attributes:
    """Return a stream's name, region and account as attributes."""
    if not arn:
        return {}
    *_, region, account, resource = arn.split(":", 5)
    return {
        STREAM_NAME: resource.removeprefix("stream/"),
        REGION: region,
        ACCOUNT: account,
    }


class OpenTelemetry(Telemetry):
    """Passes telemetry to the SDK that the application has set up, if any."""

    def __init__(
        self, app: str, clock: Clock, instruments: Instruments | None = None
    ) -> None:
        self._app: Attributes = {APP: app}
        self._clock = clock
        self._instruments = instruments or process_instruments()
        self._tracer = self._instruments.tracer
        self._streams: dict[str, Attributes] = {}
        self._client: Callable[[], ClientState] | None = None

    def watch(self, state: Callable[[], ClientState]) -> None:
        """Let gauges read a client's state, from the exporter's thread."""
        self._client = state
        self._instruments.clients.append(state)

    def unwatch(self) -> None:
        """End ``watch()``, if it was called."""
        if self._client is not None:
            self._instruments.clients.remove(self._client)
            self._client = None

    def count(
        self, counter: str, stream_arn: str = "", amount: int = 1, *, service: str = ""
    ) -> None:
        """Increase a counter."""
        attributes = self._attributes(stream_arn)
        if service:
            attributes = {**attributes, SERVICE: service}
        self._instruments.counters[counter].add(amount, attributes)

    @contextmanager
    def measure(self, duration: str, stream_arn: str = "") -> Iterator[None]:
        """Measure the block's duration unless the block raises."""
        attributes = self._attributes(stream_arn)
        span = _DURATIONS[duration]
        start_span = self._tracer.start_as_current_span
        with start_span(span, attributes=attributes) if span else nullcontext():
            started = self._clock.now()
            yield
            seconds = self._clock.now() - started
            self._instruments.durations[duration].record(seconds, attributes)

    def trace(
        self,
        span: str,
        stream_arn: str = "",
        attributes: Mapping[str, int] | None = None,
        traceparents: Iterable[str] = (),
    ) -> AbstractContextManager[object]:
        """Trace the block, linked to the producers' spans."""
        return self._tracer.start_as_current_span(
            span,
            attributes={**self._attributes(stream_arn), **(attributes or {})},
            links=links_to(traceparents),
        )

    def trace_record(
        self, stream_arn: str, traceparent: str
    ) -> AbstractContextManager[object]:
        """Trace a handler's call for one record as a child of its producer's span."""
        from opentelemetry import trace

        current = trace.get_current_span().get_span_context()
        return self._tracer.start_as_current_span(
            HANDLE_RECORD_SPAN,
            context=_producer_context(traceparent),
            attributes=self._attributes(stream_arn),
            links=[trace.Link(current)] if current.is_valid else (),
        )

    def _attributes(self, stream_arn: str) -> Attributes:
        known = self._streams.get(stream_arn)
        if known is None:
            known = self._app | stream_attributes(stream_arn)
            self._streams[stream_arn] = known
        return known


def links_to(traceparents: Iterable[str]) -> list[Link]:
    """Return one link per producer's span. Invalid headers are left out."""
    from opentelemetry import trace

    links: list[Link] = []
    for traceparent in dict.fromkeys(traceparents):
        span = trace.get_current_span(_producer_context(traceparent))
        if span.get_span_context().is_valid and len(links) < MAX_LINKS:
            links.append(trace.Link(span.get_span_context()))
    return links


def _producer_context(traceparent: str) -> Context:
    """Return the context that a W3C traceparent header names; else an empty one."""
    from opentelemetry.context import Context as NewContext
    from opentelemetry.trace.propagation.tracecontext import (
        TraceContextTextMapPropagator,
    )

    # Producers write this text. Some versions of OpenTelemetry take seconds to match
    # a long run of spaces, and others log each one.
    if len(traceparent) > MAX_TRACEPARENT_CHARACTERS:
        return NewContext()
    carrier = {"traceparent": traceparent}
    return TraceContextTextMapPropagator().extract(carrier, NewContext())
