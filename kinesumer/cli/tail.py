"""``kinesumer tail``."""

from __future__ import annotations

import asyncio
import random
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from kinesumer.admin.arguments import parse_start
from kinesumer.cli import options
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.cli.console import Output
    from kinesumer.cli.record_formats import Format
    from kinesumer.model.records import Record
    from kinesumer.model.streams import Start, Stream


class Wanted(NamedTuple):
    """What was asked for."""

    stream: Stream
    region: str | None
    start: Start
    limit: int | None
    seconds: float | None


class EnoughError(Exception):
    """So many records were printed as were asked for."""


@click.command()
@click.argument("stream")
@options.output
@click.option(
    "--start",
    default="LATEST",
    show_default=True,
    help="LATEST, TRIM_HORIZON, a time like 2026-01-31T12:00:00Z, or 90m, 2h, 3d ago.",
)
@click.option("--limit", type=click.IntRange(1), help="End after so many records.")
@click.option(
    "--seconds",
    type=options.Real(0, min_open=True),
    help="End after so long.",
)
@options.region
@options.roles
@options.external_id
def tail(
    stream: str,
    output: str,
    start: str,
    limit: int | None,
    seconds: float | None,
    region: str | None,
    role: tuple[str, ...],
    external_id: str | None,
) -> None:
    """Write a stream's records as they arrive: no group, no table, nothing stored.

    STREAM is a name or an ARN. Records of a shard come in order, and those of its
    children after them. Ctrl-C ends it.
    """
    from kinesumer.admin.connect import parse_roles
    from kinesumer.cli.console import Output
    from kinesumer.cli.record_formats import FORMATS

    named = parse_roles(role, external_id).stream(stream)
    wanted = Wanted(named, region, parse_start("--start", start), limit, seconds)
    with Output() as out:
        asyncio.run(_tail(wanted, FORMATS[output](), out))


async def _tail(wanted: Wanted, form: Format, out: Output) -> None:
    from kinesumer.cli.console import ClosedOutputError

    reading = asyncio.create_task(_read(wanted, Writer(form, out, wanted.limit)))
    ticker = asyncio.create_task(out.keep_ticking(form.tick, reading.cancel))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, reading.cancel)
    try:
        await asyncio.wait({reading})
    finally:
        ticker.cancel()
    with suppress(ClosedOutputError):
        if not reading.cancelled():
            reading.result()
        await out.write(form.end())


async def _read(wanted: Wanted, writer: Writer) -> None:
    """Read until there is enough, or for so long. Raises ClosedOutputError."""
    from kinesumer.admin.tail import Tail
    from kinesumer.aws.kinesis import open_source
    from kinesumer.aws.session import ClientFactory
    from kinesumer.runtime.clock import SystemClock

    with suppress(EnoughError, TimeoutError):
        async with (
            asyncio.timeout(wanted.seconds),
            ClientFactory(region=wanted.region) as aws,
        ):
            source = await open_source(aws, wanted.stream)
            tail = Tail(
                source,
                await source.describe(),
                writer.take,
                say=lambda text: click.echo(escape_unprintable(text), err=True),
                clock=SystemClock(),
                chance=random.Random(),
            )
            await tail.run(wanted.start)


class Writer:
    """Writes records up to a limit, a page at a time."""

    def __init__(self, form: Format, out: Output, limit: int | None) -> None:
        self._form, self._out, self._left = form, out, limit
        self._turn = asyncio.Lock()

    async def take(self, records: Sequence[Record]) -> None:
        """Write them. Raises EnoughError when the limit is reached."""
        async with self._turn:
            part = list(records[: self._left])
            await self._out.write(self._form.records(part))
            if self._left is not None:
                self._left -= len(part)
                if self._left == 0:
                    raise EnoughError
