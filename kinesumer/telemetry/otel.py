"""Telemetry through OpenTelemetry's API, with one set of instruments per process."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from kinesumer.ports import Clock
from kinesumer.telemetry.api import ClientState, ProducerState, Telemetry

if TYPE_CHECKING:
    from opentelemetry import metrics
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from opentelemetry.trace import Link, Tracer


Attributes = dict[str, str]
# A gauge's value, with its app, its stream's ARN, and the kind of an incident.
Value = tuple[str, str, str, float | None]
T = TypeVar("T")

MAX_LINKS = 128  # OpenTelemetry's limit of links per span
MAX_TRACEPARENT_CHARACTERS = 512  # a header has 55 now, and may have more later

COUNTERS = {
    "records_processed": "{record}",
    "data_bytes_processed": "By",
    "records_outside_hash_range": "{record}",
    "lost_leases": "{shard}",
    "throttles": "{request}",
    "corrupt_rows": "{row}",
    "corrupt_aggregates": "{record}",
    "decode_failures": "{record}",
    "handler_failures": "{call}",
    "dead_letters": "{record}",
    "records_put": "{record}",
    "data_bytes_put": "By",
    "put_retries": "{record}",
}
DURATIONS = ("round", "hand_over", "commit", "coordination.heartbeat", "put")
MEASURED_SPANS = ("round", "hand_over")  # durations that also have spans
SPANS = (*MEASURED_SPANS, "commit", "handle", "handle_record")
# Bounds of the histograms' buckets in seconds, from the time of a quick request to the
# default of ``drain_timeout_seconds``.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# The gauges and their units. The names are fields of StreamState, ClientState and
# ProducerState, with dots for some underscores.
STREAM_GAUGES = {
    "millis_behind_latest": "ms",
    "current_leases": "{shard}",
    "leases_to_take": "{shard}",
    "total_leases": "{shard}",
    "records_uncommitted": "{record}",
    "fan_out_polling": "{client}",
    "isolated_leases": "{shard}",
}
CLIENT_GAUGES = {
    "num_workers": "{client}",
    "clients.wanted": "{client}",
    "buffered_bytes": "By",
    "work": "s/s",
}
PRODUCER_GAUGES = {"put_buffered_bytes": "By"}
INCIDENT_GAUGES = {"incidents": "{incident}"}


class Instruments:
    """All instruments of one meter and tracer, shared by all clients of a process."""

    def __init__(self, meter: Meter, tracer: Tracer) -> None:
        self.tracer = tracer
        self.clients: list[Callable[[], ClientState]] = []
        self.producers: list[Callable[[], ProducerState]] = []
        self.counters: dict[str, metrics.Counter] = {
            name: meter.create_counter(f"kinesumer.{name}", unit)
            for name, unit in COUNTERS.items()
        }
        self.durations: dict[str, metrics.Histogram] = {
            name: meter.create_histogram(
                f"kinesumer.{name}.duration",
                "s",
                explicit_bucket_boundaries_advisory=BUCKETS,
            )
            for name in DURATIONS
        }
        gauges = STREAM_GAUGES | CLIENT_GAUGES | PRODUCER_GAUGES | INCIDENT_GAUGES
        for name, unit in gauges.items():
            observe = partial(self._observe, name)
            meter.create_observable_gauge(f"kinesumer.{name}", [observe], unit)

    def _observe(self, name: str, _: CallbackOptions) -> list[Observation]:
        from opentelemetry.metrics import Observation

        # Attributes don't tell the clients of a process apart. So a gauge shows the sum
        # of all clients' values, and the gauge of the lag shows the greatest value.
        merge = max if name == "millis_behind_latest" else operator.add
        merged: dict[tuple[str, str, str], float] = {}
        for app, arn, kind, value in self._read(name):
            if value is not None:
                key = app, arn, kind
                merged[key] = merge(merged.get(key, 0), value)
        return [
            Observation(
                value,
                ({"kinesumer.app": app} if app else {})
                | ({"kinesumer.kind": kind} if kind else {})
                | stream_attributes(arn),
            )
            for (app, arn, kind), value in merged.items()
        ]

    def _read(self, name: str) -> Iterator[Value]:
        """Yield the values of a gauge. Producers belong to no app."""
        if name in INCIDENT_GAUGES:
            found = [(one.app, one.incidents) for one in _states(self.clients)]
            found += [("", one.incidents) for one in _states(self.producers)]
            for app, incidents in found:
                for one in incidents:
                    yield app, one.stream_arn, one.kind.value, 1
        elif name in PRODUCER_GAUGES:
            for producer in _states(self.producers):
                yield "", producer.arn, "", getattr(producer, name)
        elif name in CLIENT_GAUGES:
            for client in _states(self.clients):
                yield client.app, "", "", getattr(client, name.replace(".", "_"))
        else:
            for client in _states(self.clients):
                for stream in client.streams:
                    yield client.app, stream.arn, "", getattr(stream, name)


def _states(sources: list[Callable[[], T]]) -> list[T]:
    return [state() for state in sources]


@cache
def process_instruments() -> Instruments:
    """Return the instruments of the global providers.

    They are created once, since an SDK keeps only one callback for each gauge's name.
    """
    from opentelemetry import metrics, trace

    # What reads traceparents. Import it now, since this may need a descriptor.
    import_module("opentelemetry.trace.propagation.tracecontext")
    return Instruments(metrics.get_meter("kinesumer"), trace.get_tracer("kinesumer"))


def stream_attributes(arn: str) -> Attributes:
    """Return a stream's name, region and account as attributes."""
    if not arn:
        return {}
    *_, region, account, resource = arn.split(":", 5)
    return {
        "aws.kinesis.stream_name": resource.removeprefix("stream/"),
        "cloud.region": region,
        "cloud.account.id": account,
    }


class OpenTelemetry(Telemetry):
    """Passes telemetry to the SDK that the application has set up, if any."""

    def __init__(
        self, app: str | None, clock: Clock, instruments: Instruments | None = None
    ) -> None:
        # A producer has no app.
        self._app: Attributes = {} if app is None else {"kinesumer.app": app}
        self._clock = clock
        self._instruments = instruments or process_instruments()
        self._tracer = self._instruments.tracer
        self._streams: dict[str, Attributes] = {}
        self._unwatch: Callable[[], None] = lambda: None

    def watch(self, state: Callable[[], ClientState]) -> None:
        """Let gauges read a client's state, in the thread of the exporter."""
        self._instruments.clients.append(state)
        self._unwatch = partial(self._instruments.clients.remove, state)

    def watch_producer(self, state: Callable[[], ProducerState]) -> None:
        """Let gauges read a producer's state, in the thread of the exporter."""
        self._instruments.producers.append(state)
        self._unwatch = partial(self._instruments.producers.remove, state)

    def unwatch(self) -> None:
        """End ``watch()`` or ``watch_producer()``, if one was called."""
        unwatch, self._unwatch = self._unwatch, lambda: None
        unwatch()

    def count(
        self, name: str, stream_arn: str = "", amount: int = 1, *, service: str = ""
    ) -> None:
        """Increase a counter."""
        attributes = self._attributes(stream_arn)
        if service:
            attributes = {**attributes, "kinesumer.service": service}
        self._instruments.counters[name].add(amount, attributes)

    @contextmanager
    def measure(self, name: str, stream_arn: str = "") -> Iterator[None]:
        """Measure the block's duration unless the block raises."""
        is_span = name in MEASURED_SPANS
        with self.trace(name, stream_arn) if is_span else nullcontext():
            started = self._clock.now()
            yield
            seconds = self._clock.now() - started
            attributes = self._attributes(stream_arn)
            self._instruments.durations[name].record(seconds, attributes)

    def trace(
        self,
        name: str,
        stream_arn: str = "",
        traceparents: Iterable[str] = (),
        **counts: int,
    ) -> AbstractContextManager[object]:
        """Trace the block with links to the producers' spans."""
        attributes = {f"kinesumer.{key}": count for key, count in counts.items()}
        return self._tracer.start_as_current_span(
            f"kinesumer.{name}",
            attributes={**self._attributes(stream_arn), **attributes},
            links=links_to(traceparents),
        )

    def trace_record(
        self, stream_arn: str, traceparent: str
    ) -> AbstractContextManager[object]:
        """Trace a handler's call for one record as a child of its producer's span."""
        from opentelemetry import trace

        current = trace.get_current_span().get_span_context()
        return self._tracer.start_as_current_span(
            "kinesumer.handle_record",
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
    """Return the context of a W3C traceparent header, or an empty context."""
    from opentelemetry.context import Context as NewContext
    from opentelemetry.trace.propagation.tracecontext import (
        TraceContextTextMapPropagator,
    )

    # The text comes from producers, so it may be long. Some versions of OpenTelemetry
    # take seconds to parse a long sequence of spaces, and others log each text that is
    # too long.
    if len(traceparent) > MAX_TRACEPARENT_CHARACTERS:
        return NewContext()
    carrier = {"traceparent": traceparent}
    return TraceContextTextMapPropagator().extract(carrier, NewContext())
