"""``kinesumer consume`` and ``tail``: write records to standard output."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import click

from kinesumer import Config, Kinesumer
from kinesumer.aws.sources import open_polled_source
from kinesumer.errors import ConfigurationError
from kinesumer.model.records import Record
from kinesumer.model.streams import Start, stream_name
from kinesumer.model.times import as_until, parse_until
from kinesumer.ops.cli import record_output as output
from kinesumer.ops.cli.console import run_until_signal
from kinesumer.ops.cli.options import (
    READING,
    ROLES,
    CommonOptions,
    FiniteFloat,
    command,
)
from kinesumer.ops.cli.record_output import FORMATS, ClosedOutputError, Output
from kinesumer.ops.group.connect import with_fan_out
from kinesumer.ops.group.records import Tail
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.stop_signals import SIGNALS, StopSignals
from kinesumer.runtime.text import counted, escape_unprintable

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider


# The longest time for an export with its retries. The last export delays the end of
# the command.
OTLP_SECONDS = 2.0
LEAVE_GRACE_SECONDS = 1.0


@command("app", *READING, "table", *ROLES, "region")
@click.argument("streams", metavar="STREAM…", nargs=-1)
@click.option(
    "--client-id",
    envvar="KINESUMER_CLIENT_ID",
    show_envvar=True,
    help="Unique among live processes. Default: a new ID for each run.",
)
@click.option(
    "--kcl-table",
    metavar="NAME",
    help="Join the KCL fleet with this lease table as one of its workers.",
)
@click.option(
    "--label",
    default="",
    help="The zone or cluster of this process. Each label gets its fair share.",
)
@click.option(
    "--fan-out",
    metavar="[STREAM=]NAME",
    multiple=True,
    help="Read all streams, or one stream, by enhanced fan-out with this consumer: a "
    "name, which is registered if it is missing, or an ARN. AWS bills it for each "
    "shard and hour. Repeatable.",
)
@click.option(
    "--fan-out-fallback",
    is_flag=True,
    help="Poll while fan-out isn't possible, instead of failing.",
)
@click.option(
    "--otlp",
    is_flag=True,
    help="Send metrics and traces by OTLP, as the OTEL_EXPORTER_OTLP_… variables say.",
)
@click.option(
    "--metrics-console", is_flag=True, help="Print metrics to standard error."
)
def consume(
    common: CommonOptions,
    streams: tuple[str, ...],
    client_id: str | None,
    kcl_table: str | None,
    label: str,
    fan_out: tuple[str, ...],
    fan_out_fallback: bool,
    otlp: bool,
    metrics_console: bool,
) -> None:
    """Write the records of streams, given by name or ARN, to standard output.

    Processes with the same --app share the streams. --start applies to streams for
    which the app has no positions. A record counts as processed when it has been
    written. Ctrl-C hands the shards over to the other processes without a gap; a second
    Ctrl-C stops at once, and a third one kills the process. On a terminal, the command
    says what it waits for until the first record comes.
    """
    roles = common.roles()
    if not streams:
        raise ConfigurationError(
            "no stream to consume: name at least one, by its name or ARN, or as "
            "table/NAME for the stream of a DynamoDB table"
        )
    sources = with_fan_out(roles.streams(streams), fan_out, fallback=fan_out_fallback)
    end = None if common.until is None else parse_until("--until", common.until)
    begin, format_ = Start.parse(common.start, name="--start"), FORMATS[common.output]()

    async def run(out: Output) -> None:
        client = Kinesumer(
            common.app,
            table=common.table,
            region=common.region,
            client_id=client_id,
            kcl_table=kcl_table,
            config=Config(label=label),
        )
        say = partial(print, file=sys.stderr)
        with SignalHandler(client, say) as signals:
            # While no records arrive, only the ticker notices that the pipe was closed.
            ticker = asyncio.create_task(
                out.keep_ticking(format_.tick, signals.stop_at_once)
            )
            waiting = asyncio.create_task(_say_what_is_awaited(client, streams, say))
            try:
                async with client:
                    records = client.consume(
                        sources, start=begin, until=end, limit=common.limit
                    )
                    try:
                        async for batch in records.batches():
                            waiting.cancel()
                            # The batch is acked when the loop asks for the next one.
                            await out.write(format_.records(batch.records))
                    finally:
                        # These tasks must not cancel the client while it releases its
                        # shards.
                        ticker.cancel()
                        signals.close()
            except asyncio.CancelledError:
                # Cancellation by stop_at_once() is a normal end. Any other must
                # propagate.
                if not signals.stopped_at_once:
                    raise
            except ClosedOutputError:
                return  # the usual end of `consume | head`, and not an error
            finally:
                ticker.cancel()
                waiting.cancel()
                signals.close()
            with suppress(ClosedOutputError):
                await out.write(format_.end())

    with _telemetry(otlp=otlp, console=metrics_console), Output() as out:
        asyncio.run(run(out))


class SignalHandler(StopSignals):
    """Leaves the group on the first signal, and stops at once on the second.

    Use it as a context manager in the task that consumes. The third signal kills the
    process.
    """

    def __init__(self, client: Kinesumer, say: Callable[[str], None]) -> None:
        self._client, self._say = client, say
        self._consumer = asyncio.current_task()
        self._leaving: asyncio.Task[None] | None = None
        self._is_closed = False
        # Whether stop_at_once() has cancelled the consuming task.
        self.stopped_at_once: bool = False
        loop = asyncio.get_running_loop()
        super().__init__(
            lambda: loop.call_soon_threadsafe(self._begin_to_leave),
            lambda: loop.call_soon_threadsafe(self._stop_now),
        )

    def _begin_to_leave(self) -> None:
        self._say("leaving: other clients take the shards over (again: stop now)")
        self._leaving = asyncio.create_task(self._leave())

    def _stop_now(self) -> None:
        # From now on a signal kills the process, even if user code blocks the loop.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        self._say("stopping now (again: kill)")
        self.stop_at_once()

    async def _leave(self) -> None:
        try:
            await self._client.leave()
            # Leaving ends the iteration, and then close() cancels this wait. A client
            # that hasn't begun to consume has no iteration, so stop it after the wait.
            await asyncio.sleep(LEAVE_GRACE_SECONDS)
        finally:
            if not self._is_closed:
                self.stop_at_once()

    def stop_at_once(self) -> None:
        """Cancel the consuming task: it stores positions and releases its shards."""
        if self._consumer is not None and not self._consumer.done():
            self.stopped_at_once = True
            self._consumer.cancel()

    def close(self) -> None:
        """Don't stop the consuming task any more, since its iteration has ended."""
        self._is_closed = True
        if self._leaving is not None:
            self._leaving.cancel()


async def _say_what_is_awaited(
    client: Kinesumer, streams: Sequence[str], say: Callable[[str], None]
) -> None:
    """Say on a terminal that no records have come yet, and how many shards there are.

    Say it again when the number of the client's shards has changed.
    """
    names = ", ".join(stream_name(stream) for stream in streams)
    said: int | None = None
    while sys.stderr.isatty():
        # Nothing is said if records come sooner.
        await asyncio.sleep(output.TICK_SECONDS)
        count = len(client.assignment())
        # A client that leaves gives its shards up. It no longer waits for records.
        if count == said or (said and not count):
            continue
        said = count
        shards = counted(count, "shard") if count else "no shards yet"
        say(f"waiting for records from {names}… (client {client.client_id}, {shards})")


@contextmanager
def _telemetry(*, otlp: bool, console: bool) -> Iterator[None]:
    """Set up meters and tracers. Export the remaining data at the end.

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
    # The library finds the providers through OpenTelemetry's global API.
    from opentelemetry import metrics, trace

    # Show only errors: the SDK logs a warning at each retry, and an error if an
    # export fails for good.
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    metrics.set_meter_provider(meters)
    trace.set_tracer_provider(tracers)
    try:
        yield
    finally:
        tracers.shutdown()
        meters.shutdown()


def _providers(*, otlp: bool, console: bool) -> tuple[MeterProvider, TracerProvider]:
    from opentelemetry.sdk import trace
    from opentelemetry.sdk.metrics import MeterProvider, export
    from opentelemetry.sdk.resources import Resource

    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override the name.
    resource = Resource.create({"service.name": "kinesumer"})
    tracers = trace.TracerProvider(resource=resource)
    readers: list[export.MetricReader] = []
    if otlp:
        from opentelemetry.exporter.otlp.proto.http import metric_exporter as metrics
        from opentelemetry.exporter.otlp.proto.http import trace_exporter as traces
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        # If the timeout is None, the exporters use the standard variable.
        is_set = "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ
        timeout = None if is_set else OTLP_SECONDS
        exporter = metrics.OTLPMetricExporter(timeout=timeout)
        readers.append(export.PeriodicExportingMetricReader(exporter))
        spans = BatchSpanProcessor(traces.OTLPSpanExporter(timeout=timeout))
        tracers.add_span_processor(spans)
    if console:
        printed = export.ConsoleMetricExporter(out=sys.stderr)
        readers.append(export.PeriodicExportingMetricReader(printed, 10_000))
    return MeterProvider(readers, resource=resource), tracers


class LimitReachedError(Exception):
    """As many records as --limit allows were written."""


@command(*READING, "region", *ROLES)
@click.argument("stream")
@click.option(
    "--seconds",
    type=FiniteFloat(0, min_open=True),
    help="End after this many seconds.",
)
async def tail(common: CommonOptions, stream: str, seconds: float | None) -> None:
    """Write a stream's records as they arrive. Needs no group, and stores nothing.

    STREAM is a name or an ARN, or table/NAME for the stream of a DynamoDB table.
    Records of a shard come in order, and before the
    records of its child shards. Ctrl-C ends the command.
    """
    [source] = common.roles().streams([stream])
    begin, format_ = Start.parse(common.start, name="--start"), FORMATS[common.output]()
    until = common.until
    end = None if until is None else as_until(parse_until("--until", until))

    async def read(writer: Writer) -> None:
        with suppress(LimitReachedError, TimeoutError):
            async with asyncio.timeout(seconds), common.clients() as aws:
                opened = await open_polled_source(aws, source)
                reader = Tail(
                    opened,
                    await opened.describe(),
                    writer.write,
                    report=lambda text: click.echo(escape_unprintable(text), err=True),
                    clock=SystemClock(),
                    chance=random.Random(),
                    until=end,
                )
                await reader.run(begin)

    # A closed pipe is the usual end of `tail | head`, and not an error.
    with Output() as out, suppress(ClosedOutputError):
        reading = asyncio.create_task(read(Writer(format_, out, common.limit)))
        ticker = asyncio.create_task(out.keep_ticking(format_.tick, reading.cancel))
        try:
            await run_until_signal(reading)
        finally:
            ticker.cancel()
        await out.write(format_.end())


class Writer:
    """Writes records up to a limit, one page at a time."""

    def __init__(self, format_: output.Format, out: Output, limit: int | None) -> None:
        self._format, self._out, self._left = format_, out, limit
        self._lock = asyncio.Lock()

    async def write(self, records: Sequence[Record]) -> None:
        """Write records. Raises LimitReachedError when the limit is reached."""
        # Shards are read concurrently. Without a lock, they could exceed the limit.
        async with self._lock:
            page = list(records[: self._left])
            await self._out.write(self._format.records(page))
            if self._left is not None:
                self._left -= len(page)
                if self._left == 0:
                    # Raising an error ends the readers of all shards.
                    raise LimitReachedError
