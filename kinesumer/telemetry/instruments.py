"""The instruments of OpenTelemetry, one set for all clients of a process."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TypeVar

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.trace import Tracer

from kinesumer.telemetry import conventions
from kinesumer.telemetry.api import ClientState, ProducerState

# A gauge's value, with its app, its stream's ARN, and the kind of an incident.
Value = tuple[str, str, str, float | None]
T = TypeVar("T")

COUNTERS = {
    "data_bytes_processed": "By",
    "records_outside_hash_range": "{record}",
    "lost_leases": "{shard}",
    "throttles": "{request}",
    "corrupt_rows": "{row}",
    "corrupt_aggregates": "{record}",
    "decode_failures": "{record}",
    "handler_failures": "{call}",
    "dead_letters": "{record}",
    "data_bytes_put": "By",
    "put_retries": "{record}",
}
# The counters of the conventions, and the names of their operations.
MESSAGE_COUNTERS = {
    "consumed_messages": (conventions.CONSUMED_MESSAGES, "consume"),
    "sent_messages": (conventions.SENT_MESSAGES, conventions.PUT.name),
}
DURATIONS = ("round", "hand_over", "coordination.heartbeat")
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
        for name, (metric, _) in MESSAGE_COUNTERS.items():
            self.counters[name] = meter.create_counter(metric, "{message}")
        self.durations: dict[str, metrics.Histogram] = {
            name: meter.create_histogram(
                f"kinesumer.{name}.duration",
                "s",
                explicit_bucket_boundaries_advisory=BUCKETS,
            )
            for name in DURATIONS
        }
        self.operations: metrics.Histogram = _message_duration(
            meter, conventions.OPERATION_DURATION
        )
        self.processing: metrics.Histogram = _message_duration(
            meter, conventions.PROCESS_DURATION
        )
        gauges = STREAM_GAUGES | CLIENT_GAUGES | PRODUCER_GAUGES | INCIDENT_GAUGES
        for name, unit in gauges.items():
            observe = partial(self._observe, name)
            meter.create_observable_gauge(f"kinesumer.{name}", [observe], unit)

    def _observe(self, name: str, _: CallbackOptions) -> list[Observation]:
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
                ({conventions.GROUP: app} if app else {})
                | ({"kinesumer.kind": kind} if kind else {})
                | conventions.stream_attributes(arn),
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


def _message_duration(meter: Meter, name: str) -> metrics.Histogram:
    return meter.create_histogram(
        name, "s", explicit_bucket_boundaries_advisory=conventions.BUCKETS
    )


def _states(sources: list[Callable[[], T]]) -> list[T]:
    return [state() for state in sources]


@cache
def process_instruments() -> Instruments:
    """Return the instruments of the global providers.

    They are created once, since an SDK keeps only one callback for each gauge's name.
    """
    return Instruments(metrics.get_meter("kinesumer"), trace.get_tracer("kinesumer"))
