"""OpenTelemetry's SDK for the command; the library itself knows the API only."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace import TracerProvider

CONSOLE_MILLISECONDS = 10_000


@contextmanager
def telemetry(*, otlp: bool, console: bool) -> Iterator[None]:
    """Set up meters and tracers, and send what is left at the end.

    Raises ConfigurationError if the extra isn't installed.
    """
    try:
        meters, tracers = _providers(otlp=otlp, console=console)
    except ImportError as error:
        raise ConfigurationError(
            f"--otlp and --metrics-console need OpenTelemetry's SDK ({error.name} is "
            "missing): pip install 'kinesumer[otel]'"
        ) from error
    from opentelemetry import metrics, trace

    metrics.set_meter_provider(meters)
    trace.set_tracer_provider(tracers)
    try:
        yield
    finally:
        tracers.shutdown()
        meters.shutdown()


def _providers(*, otlp: bool, console: bool) -> tuple[MeterProvider, TracerProvider]:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    meters = MeterProvider(list(_readers(otlp=otlp, console=console)))
    tracers = TracerProvider()
    if otlp:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return meters, tracers


def _readers(*, otlp: bool, console: bool) -> Iterator[MetricReader]:
    from opentelemetry.sdk.metrics.export import (
        ConsoleMetricExporter,
        PeriodicExportingMetricReader,
    )

    if otlp:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
            OTLPMetricExporter,
        )

        yield PeriodicExportingMetricReader(OTLPMetricExporter())
    if console:
        yield PeriodicExportingMetricReader(
            ConsoleMetricExporter(out=sys.stderr),
            export_interval_millis=CONSOLE_MILLISECONDS,
        )
