"""``kinesumer export``: an app's positions, for a file or for a KCL fleet."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kinesumer.cli import options
from kinesumer.cli.default_command import UnnamedCommand
from kinesumer.cli.kcl import export_kcl
from kinesumer.errors import KinesumerError

if TYPE_CHECKING:
    from kinesumer.migration.positions import Positions


@click.group(
    "export",
    cls=UnnamedCommand,
    unnamed="file",
    subcommand_metavar="[-o FILE] | kcl TABLE",
)
def export() -> None:
    """Write down how far an app has read, or hand it to a KCL fleet.

    \b
    kinesumer export --app APP [-o FILE]    as JSON, for `kinesumer import FILE`
    kinesumer export kcl TABLE --app APP    into the lease table of a KCL fleet
    """


@export.command("file", hidden=True)
@options.app
@options.table
@options.region
@options.streams
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default="-",
    help="Where to write; by default standard output.",
)
def file(
    app: str, table: str, region: str | None, stream: tuple[str, ...], output: Path
) -> None:
    """Write how far an app has read each shard, as JSON: see docs/positions.md.

    Clients may run: then each shard's last commit is written. It asks nothing of
    Kinesis.
    """
    from kinesumer.migration.positions import encode
    from kinesumer.migration.takeover import narrowed

    found = asyncio.run(_read(app, table, region))
    _put(output, encode(narrowed(stream, found)))


def _put(output: Path, content: bytes) -> None:
    """Write to a file, or into what isn't one; a file is replaced when all is there."""
    from kinesumer.runtime.files import write_atomically

    try:
        if output == Path("-"):
            click.echo(content, nl=False)
        elif output.exists() and not output.is_file():
            output.write_bytes(content)
        else:
            write_atomically(output, content, _mode(output))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise KinesumerError(f"{output} can't be written: {error.strerror}") from error


def _mode(path: Path) -> int:
    """Return the permissions of a file, or those that a new one has."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


async def _read(app: str, table: str, region: str | None) -> Positions:
    from kinesumer.admin import snapshot
    from kinesumer.admin.connect import connect
    from kinesumer.migration.positions import of_group
    from kinesumer.wire.rows import timestamp_text

    async with connect(table, region) as (_, store):
        found = await snapshot.take(store, app)
    if found.corrupt:
        raise KinesumerError("; ".join(found.corrupt))
    if not found.streams:
        raise KinesumerError(
            f"table {table} knows no app {app!r}; check --app, --table and --region"
        )
    for stream in found.streams:
        if not stream.baseline:
            raise KinesumerError(
                f"stream {stream.arn}: its shards haven't been listed completely yet; "
                "try again when the clients run"
            )
    return of_group(app, timestamp_text(time.time()), found.streams, found.shards)


export.add_command(export_kcl)
