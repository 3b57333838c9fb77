"""``kinesumer tail``."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from kinesumer.admin.arguments import parse_start
from kinesumer.cli import options
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.cli.options import CommonOptions
    from kinesumer.cli.record_output import Format, Output
    from kinesumer.model.records import Record
    from kinesumer.model.streams import Start, Stream


class Source(NamedTuple):
    """What to read, and for how long."""

    stream: Stream
    region: str | None
    start: Start
    seconds: float | None


class LimitReachedError(Exception):
    """As many records as --limit allows were written."""


@click.command()
@click.argument("stream")
@options.output
@click.option(
    "--start",
    default="LATEST",
    show_default=True,
    help="LATEST, TRIM_HORIZON, a time like 2026-01-31T12:00:00Z, or 90m, 2h, 3d ago.",
)
@click.option("--limit", type=click.IntRange(1), help="End after this many records.")
@click.option(
    "--seconds",
    type=options.FiniteFloat(0, min_open=True),
    help="End after this many seconds.",
)
@options.region
@options.roles
@options.pass_common
def tail(
    common: CommonOptions,
    stream: str,
    output: str,
    start: str,
    limit: int | None,
    seconds: float | None,
) -> None:
    """Write a stream's records as they arrive: without a group, and nothing is stored.

    STREAM is a name or an ARN. Records of a shard come in order, and before the
    records of its child shards. Ctrl-C ends the command.
    """
    from kinesumer.cli.record_output import FORMATS, Output

    read_from = common.roles().stream(stream)
    source = Source(read_from, common.region, parse_start("--start", start), seconds)
    format_ = FORMATS[output]()
    with Output() as out:
        asyncio.run(_tail(source, Writer(format_, out, limit), format_, out))


async def _tail(source: Source, writer: Writer, format_: Format, out: Output) -> None:
    from kinesumer.cli.record_output import ClosedOutputError
    from kinesumer.cli.signals import run_until_signal

    reading = asyncio.create_task(_read(source, writer))
    ticker = asyncio.create_task(out.keep_ticking(format_.tick, reading.cancel))
    # A closed pipe is the usual end of `tail | head`, and not an error.
    with suppress(ClosedOutputError):
        try:
            await run_until_signal(reading)
        finally:
            ticker.cancel()
        await out.write(format_.end())


async def _read(source: Source, writer: Writer) -> None:
    """Read until the limit or the time is reached. Raises ClosedOutputError."""
    from kinesumer.admin.tail import Tail
    from kinesumer.aws.kinesis import open_source
    from kinesumer.aws.session import ClientFactory
    from kinesumer.runtime.clock import SystemClock

    with suppress(LimitReachedError, TimeoutError):
        async with (
            asyncio.timeout(source.seconds),
            ClientFactory(region=source.region) as aws,
        ):
            opened = await open_source(aws, source.stream)
            tail = Tail(
                opened,
                await opened.describe(),
                writer.write,
                report=lambda text: click.echo(escape_unprintable(text), err=True),
                clock=SystemClock(),
                chance=random.Random(),
            )
            await tail.run(source.start)


class Writer:
    """Writes records up to a limit, one page at a time."""

    def __init__(self, format_: Format, out: Output, limit: int | None) -> None:
        self._format, self._out, self._left = format_, out, limit
        self._lock = asyncio.Lock()

    async def write(self, records: Sequence[Record]) -> None:
        """Write records. Raises LimitReachedError when the limit is reached."""
        async with self._lock:
            page = list(records[: self._left])
            await self._out.write(self._format.records(page))
            if self._left is not None:
                self._left -= len(page)
                if self._left == 0:
                    raise LimitReachedError
