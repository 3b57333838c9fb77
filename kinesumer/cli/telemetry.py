"""OpenTelemetry's SDK for the command; the library itself knows the API only."""

from __future__ import annotations

import logging
import os
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
OTLP_SECONDS = 2.0
"""How long an export may take, with its repetitions: the last one delays the end."""


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

    # It warns of every try; that an export failed in the end is an error.
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    metrics.set_meter_provider(meters)
    trace.set_tracer_provider(tracers)
    try:
        yield
    finally:
        tracers.shutdown()
        meters.shutdown()


def _providers(*, otlp: bool, console: bool) -> tuple[MeterProvider, TracerProvider]:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word.
    resource = Resource.create({"service.name": "kinesumer"})
    readers = list(_readers(otlp=otlp, console=console))
    meters = MeterProvider(readers, resource=resource)
    tracers = TracerProvider(resource=resource)
    if otlp:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = OTLPSpanExporter(timeout=_timeout())
        tracers.add_span_processor(BatchSpanProcessor(exporter))
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

        exporter = OTLPMetricExporter(timeout=_timeout())
        yield PeriodicExportingMetricReader(exporter)
    if console:
        yield PeriodicExportingMetricReader(
            ConsoleMetricExporter(out=sys.stderr),
            export_interval_millis=CONSOLE_MILLISECONDS,
        )


def _timeout() -> float | None:
    """Return the time for an export, unless the standard variable says it."""
    return None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else OTLP_SECONDS
