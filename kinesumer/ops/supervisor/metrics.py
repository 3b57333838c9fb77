"""Metrics of processes for Prometheus: those of OpenTelemetry, and of user code.

A process converts its metrics into values that can be sent to the supervisor. The
supervisor serves those of all processes, with the label ``process``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# What OpenTelemetry's units are in the names of Prometheus. A unit in braces is none.
UNITS = {"s": "seconds", "ms": "milliseconds", "By": "bytes", "1": "ratio"}
UNITS |= {"s/s": "seconds_per_second"}


class Family(msgspec.Struct, frozen=True):
    """A metric of one process, with its samples."""

    name: str
    kind: str  # as in Prometheus: "counter", "gauge", "histogram", …
    help: str
    samples: list[tuple[str, dict[str, str], float]]  # with the sample's own name


class OpenTelemetryCollector(Collector):
    """Collects what a reader of OpenTelemetry's SDK has, under Prometheus's names."""

    def __init__(self, reader: InMemoryMetricReader) -> None:
        self._reader = reader

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering collects nothing."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the present metrics."""
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                yield from map(_converted, scope.metrics)


def _converted(metric: Any) -> Metric:
    """Return a metric of OpenTelemetry's SDK as one of Prometheus."""
    data, points = metric.data, metric.data.data_points
    is_histogram = hasattr(points[0], "bucket_counts") if points else False
    is_counter = getattr(data, "is_monotonic", False)
    kind = "histogram" if is_histogram else "counter" if is_counter else "gauge"
    name = metric_name(metric.name, metric.unit or "")
    made = Metric(name, metric.description or metric.name, kind)
    for point in points:
        labels = {
            _word(key): str(value) for key, value in (point.attributes or {}).items()
        }
        if is_histogram:
            made.samples += _buckets(name, labels, point)
        else:
            suffix = "_total" if is_counter else ""
            made.samples.append(Sample(name + suffix, labels, point.value))
    return made


def _buckets(name: str, labels: dict[str, str], point: Any) -> list[Sample]:
    bounds = [*map(str, point.explicit_bounds), "+Inf"]
    counts = accumulate(point.bucket_counts)
    return [
        *(
            Sample(f"{name}_bucket", {**labels, "le": bound}, count)
            for bound, count in zip(bounds, counts, strict=True)
        ),
        Sample(f"{name}_count", labels, point.count),
        Sample(f"{name}_sum", labels, point.sum),
    ]


def metric_name(name: str, unit: str) -> str:
    """Return Prometheus's name of a metric of OpenTelemetry, without ``_total``.

    Source: OpenTelemetry's specification, "Prometheus and OpenMetrics Compatibility".
    """
    word, suffix = _word(name), UNITS.get(unit, "")
    return word if not suffix or word.endswith(f"_{suffix}") else f"{word}_{suffix}"


def _word(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_:]", "_", name)


def require_sdk() -> None:
    """Raise ConfigurationError if OpenTelemetry's SDK isn't installed."""
    if find_spec("opentelemetry.sdk") is None:
        raise ConfigurationError(
            "--metrics-port needs OpenTelemetry's SDK, which isn't installed: pip "
            "install 'kinesumer[otel]'"
        )


def set_up_metrics() -> None:
    """Let OpenTelemetry's metrics be collected with those of Prometheus's client.

    Raises ConfigurationError if the SDK isn't installed, or if the program has set it
    up.
    """
    require_sdk()
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    metrics.set_meter_provider(provider)
    if metrics.get_meter_provider() is not provider:
        raise ConfigurationError(
            "--metrics-port sets up OpenTelemetry's meters, but the program has done "
            "so: leave one of them out"
        )
    REGISTRY.register(OpenTelemetryCollector(reader))


def collect_families() -> list[Family]:
    """Return all metrics of this process, also those that user code has registered."""
    return [
        Family(
            metric.name,
            metric.type,
            metric.documentation,
            [(sample.name, sample.labels, sample.value) for sample in metric.samples],
        )
        for metric in REGISTRY.collect()
    ]


class _Merged(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def render(processes: Iterable[tuple[int, Iterable[Family]]]) -> bytes:
    """Return the metrics of processes as text, with the label ``process``."""
    merged: dict[str, Metric] = {}
    for index, families in processes:
        for family in families:
            metric = merged.setdefault(
                family.name, Metric(family.name, family.help, family.kind)
            )
            metric.samples += [
                Sample(name, {**labels, "process": str(index)}, value)
                for name, labels, value in family.samples
            ]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Merged(merged.values()))
    return generate_latest(registry)
