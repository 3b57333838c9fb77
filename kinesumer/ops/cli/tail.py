"""The command ``kinesumer tail``."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from kinesumer.aws.kinesis import open_source
from kinesumer.model.streams import Start
from kinesumer.model.times import as_until, parse_until
from kinesumer.ops.cli.options import ROLES, FiniteFloat, command, output
from kinesumer.ops.cli.record_output import FORMATS, ClosedOutputError, Output
from kinesumer.ops.cli.signals import run_until_signal
from kinesumer.ops.group.tail import Tail
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.model.records import Record
    from kinesumer.ops.cli.options import CommonOptions
    from kinesumer.ops.cli.record_output import Format


class LimitReachedError(Exception):
    """As many records as --limit allows were written."""


@command("region", *ROLES)
@click.argument("stream")
@output
@click.option(
    "--start",
    default="LATEST",
    show_default=True,
    help="LATEST, TRIM_HORIZON, a time like 2026-01-31T12:00:00Z, or 90m, 2h, 3d ago.",
)
@click.option(
    "--until",
    help="End when all records are read that arrived before this: now, or a time as "
    "for --start.",
)
@click.option("--limit", type=click.IntRange(1), help="End after this many records.")
@click.option(
    "--seconds",
    type=FiniteFloat(0, min_open=True),
    help="End after this many seconds.",
)
async def tail(
    common: CommonOptions,
    stream: str,
    output: str,
    start: str,
    until: str | None,
    limit: int | None,
    seconds: float | None,
) -> None:
    """Write a stream's records as they arrive. Needs no group, and stores nothing.

    STREAM is a name or an ARN. Records of a shard come in order, and before the
    records of its child shards. Ctrl-C ends the command.
    """
    [source] = common.roles().streams([stream])
    begin = Start.parse(start, name="--start")
    end = None if until is None else as_until(parse_until("--until", until))
    format_ = FORMATS[output]()

    async def read(writer: Writer) -> None:
        with suppress(LimitReachedError, TimeoutError):
            async with asyncio.timeout(seconds), common.clients() as aws:
                opened = await open_source(aws, source)
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
        reading = asyncio.create_task(read(Writer(format_, out, limit)))
        ticker = asyncio.create_task(out.keep_ticking(format_.tick, reading.cancel))
        try:
            await run_until_signal(reading)
        finally:
            ticker.cancel()
        await out.write(format_.end())


class Writer:
    """Writes records up to a limit, one page at a time."""

    def __init__(self, format_: Format, out: Output, limit: int | None) -> None:
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
