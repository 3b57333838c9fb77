"""``kinesumer consume``."""

from __future__ import annotations

import asyncio
import sys
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from kinesumer.admin.arguments import parse_start
from kinesumer.cli import options
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kinesumer import Records, Start, Stream
    from kinesumer.cli.console import Output
    from kinesumer.cli.record_formats import Format


class Wanted(NamedTuple):
    """What was asked for."""

    app: str
    table: str
    region: str | None
    client_id: str | None
    label: str
    streams: list[Stream]
    start: Start


@click.command()
@click.argument("streams", metavar="STREAM…", nargs=-1)
@options.app
@options.table
@options.output
@click.option(
    "--start",
    default="LATEST",
    show_default=True,
    help="LATEST, TRIM_HORIZON or a time like 2026-01-31T12:00:00Z; used for streams "
    "that the app has no positions for.",
)
@options.roles
@options.external_id
@options.region
@click.option(
    "--client-id",
    envvar="KINESUMER_CLIENT_ID",
    show_envvar=True,
    help="Unique among live processes; by default a new one each time.",
)
@click.option(
    "--label",
    default="",
    help="The zone or cluster that it runs in: each label gets its fair share.",
)
@click.option(
    "--otlp",
    is_flag=True,
    help="Send metrics and traces by OTLP, as OTEL_EXPORTER_OTLP_… say.",
)
@click.option(
    "--metrics-console", is_flag=True, help="Print metrics to standard error."
)
def consume(
    streams: tuple[str, ...],
    app: str,
    table: str,
    output: str,
    start: str,
    role: tuple[str, ...],
    external_id: str | None,
    region: str | None,
    client_id: str | None,
    label: str,
    otlp: bool,
    metrics_console: bool,
) -> None:
    """Write the records of streams, given by name or ARN, to standard output.

    Processes with the same --app share the streams. A record counts as done when it has
    been written. Ctrl-C hands the shards over to the others without a gap; a second one
    stops at once, a third kills.
    """
    wanted = Wanted(
        app,
        table,
        region,
        client_id,
        label,
        _streams(streams, role, external_id),
        parse_start("--start", start),
    )
    from kinesumer.cli.console import Output
    from kinesumer.cli.record_formats import FORMATS

    with _telemetry(otlp, metrics_console), Output() as out:
        asyncio.run(_consume(wanted, FORMATS[output](), out))


def _streams(
    names: tuple[str, ...], role: tuple[str, ...], external_id: str | None
) -> list[Stream]:
    from kinesumer.admin.connect import parse_roles

    roles = parse_roles(role, external_id)
    if not names:
        raise ConfigurationError("no stream to consume: name at least one")
    return [roles.stream(name) for name in names]


def _telemetry(otlp: bool, console: bool) -> AbstractContextManager[object]:
    if not (otlp or console):
        return nullcontext()
    from kinesumer.cli.telemetry import telemetry

    return telemetry(otlp=otlp, console=console)


async def _consume(wanted: Wanted, form: Format, out: Output) -> None:
    from kinesumer import Config, Kinesumer
    from kinesumer.cli.console import ClosedOutputError
    from kinesumer.cli.signals import Stopping

    client = Kinesumer(
        wanted.app,
        table=wanted.table,
        region=wanted.region,
        client_id=wanted.client_id,
        config=Config(label=wanted.label),
    )
    stopping = Stopping(client, _say)
    ticker = asyncio.create_task(out.keep_ticking(form.tick, stopping.stop_at_once))
    try:
        async with client:
            records = client.consume(wanted.streams, start=wanted.start)
            await _write(records, form, out)
            stopping.done()
    except asyncio.CancelledError:
        if not stopping.at_once:
            raise
    except ClosedOutputError:
        return
    finally:
        stopping.done()
        ticker.cancel()
    with suppress(ClosedOutputError):
        await out.write(form.end())


async def _write(records: Records, form: Format, out: Output) -> None:
    async for batch in records.batches():
        # Asking for the next batch marks this one as done: it is written by then.
        await out.write(form.records(batch.records))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
