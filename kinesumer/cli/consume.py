"""``kinesumer consume``, and OpenTelemetry's SDK for it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from kinesumer.admin.arguments import parse_start
from kinesumer.cli import options
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace import TracerProvider

    from kinesumer import Start, Stream
    from kinesumer.cli.options import CommonOptions
    from kinesumer.cli.record_output import Format, Output

CONSOLE_MILLISECONDS = 10_000
OTLP_SECONDS = 2.0
"""The limit of an export with its retries, since the last export delays the end."""


class Request(NamedTuple):
    """What to consume, and as which client."""

    streams: list[Stream]
    start: Start
    client_id: str | None
    label: str


@click.command()
@click.argument("streams", metavar="STREAM…", nargs=-1)
@options.app
@options.table
@options.output
@click.option(
    "--start",
    default="LATEST",
    show_default=True,
    help="LATEST, TRIM_HORIZON or a time like 2026-01-31T12:00:00Z. Applies to streams "
    "for which the app has no positions.",
)
@options.roles
@options.region
@click.option(
    "--client-id",
    envvar="KINESUMER_CLIENT_ID",
    show_envvar=True,
    help="Unique among live processes. Default: a new ID for each run.",
)
@click.option(
    "--label",
    default="",
    help="The zone or cluster of this process. Each label gets its fair share.",
)
@click.option(
    "--otlp",
    is_flag=True,
    help="Send metrics and traces by OTLP, as the OTEL_EXPORTER_OTLP_… variables say.",
)
@click.option(
    "--metrics-console", is_flag=True, help="Print metrics to standard error."
)
@options.pass_common
def consume(
    common: CommonOptions,
    streams: tuple[str, ...],
    output: str,
    start: str,
    client_id: str | None,
    label: str,
    otlp: bool,
    metrics_console: bool,
) -> None:
    """Write the records of streams, given by name or ARN, to standard output.

    Processes with the same --app share the streams. A record counts as processed when
    it has been written. Ctrl-C hands the shards over to the other processes without a
    gap; a second Ctrl-C stops at once, and a third one kills the process.
    """
    from kinesumer.cli.record_output import FORMATS, Output

    named = _streams(common, streams)
    request = Request(named, parse_start("--start", start), client_id, label)
    with _telemetry(otlp=otlp, console=metrics_console), Output() as out:
        asyncio.run(_consume(common, request, FORMATS[output](), out))


def _streams(common: CommonOptions, names: tuple[str, ...]) -> list[Stream]:
    roles = common.roles()
    if not names:
        raise ConfigurationError("no stream to consume: name at least one")
    return [roles.stream(name) for name in names]


async def _consume(
    common: CommonOptions, request: Request, format_: Format, out: Output
) -> None:
    from kinesumer import Config, Kinesumer
    from kinesumer.cli.record_output import ClosedOutputError
    from kinesumer.cli.signals import SignalHandler

    client = Kinesumer(
        common.app,
        table=common.table,
        region=common.region,
        client_id=request.client_id,
        config=Config(label=request.label),
    )
    signals = SignalHandler(client, lambda text: print(text, file=sys.stderr))
    ticker = asyncio.create_task(out.keep_ticking(format_.tick, signals.stop_at_once))
    try:
        async with client:
            records = client.consume(request.streams, start=request.start)
            async for batch in records.batches():
                # The next iteration counts this batch as processed: it is written.
                await out.write(format_.records(batch.records))
            signals.close()
    except asyncio.CancelledError:
        if not signals.stopped_at_once:
            raise
    except ClosedOutputError:
        return
    finally:
        signals.close()
        ticker.cancel()
    with suppress(ClosedOutputError):
        await out.write(format_.end())


@contextmanager
def _telemetry(*, otlp: bool, console: bool) -> Iterator[None]:
    """Set up meters and tracers, and export the rest at the end.

    Raises ConfigurationError if the extra isn't installed.
    """
    if not (otlp or console):
        yield
        return
    try:
        meters, tracers = _providers(otlp=otlp, console=console)
    except ImportError as error:
        raise ConfigurationError(
            f"--otlp and --metrics-console need OpenTelemetry's SDK, but {error.name} "
            "isn't installed: pip install 'kinesumer[otel]'"
        ) from error
    from opentelemetry import metrics, trace

    # The SDK warns of each retry. It logs an error if an export fails for good.
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

    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override the name.
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
    """Return the time for an export; None if the standard variable sets it."""
    return None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else OTLP_SECONDS
