"""``kinesumer export`` and ``kinesumer import``: positions of files, and of KCL."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from kinesumer.cli import options
from kinesumer.cli.import_plan import import_positions, stream_opener
from kinesumer.cli.kcl import export_kcl, import_kcl
from kinesumer.errors import KinesumerError

if TYPE_CHECKING:
    from kinesumer.aws.session import ClientFactory
    from kinesumer.cli.options import CommonOptions
    from kinesumer.migration.positions import Positions
    from kinesumer.migration.takeover import ImportPlan
    from kinesumer.runtime.context import ClientContext

HELP_OPTIONS = ("-h", "--help")


class DefaultCommandGroup(click.Group):
    """A group that runs its default command if the first argument names none."""

    def __init__(self, *args: Any, default: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command's name if no command is named."""
        if not args or (args[0] not in self.commands and args[0] not in HELP_OPTIONS):
            args = [self._default, *args]
        return super().parse_args(ctx, args)

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the default command's options, then the commands."""
        default = self.commands[self._default]
        default.format_options(click.Context(default, parent=ctx), formatter)
        self.format_commands(ctx, formatter)


@click.group(
    "export",
    cls=DefaultCommandGroup,
    default="file",
    subcommand_metavar="[-o FILE] | kcl TABLE",
    help="""Export an app's positions to a file, or hand them to a KCL fleet.

    \b
    kinesumer export --app APP [-o FILE]    as JSON, for `kinesumer import FILE`
    kinesumer export kcl TABLE --app APP    into the lease table of a KCL fleet
    """,
)
def export() -> None:
    """Export an app's positions."""


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
    help="The file to write. Default: standard output.",
)
@options.pass_common
def export_file(common: CommonOptions, output: Path) -> None:
    """Write an app's position in each shard as JSON: see docs/positions.md.

    Clients may run: then the command writes each shard's last commit. It doesn't call
    Kinesis.
    """
    from kinesumer.migration.positions import encode
    from kinesumer.migration.takeover import narrowed

    positions = asyncio.run(_read(common))
    _write(output, encode(narrowed(common.streams, positions)))


def _write(output: Path, content: bytes) -> None:
    """Write to standard output, a device, or a file, which is replaced atomically."""
    from kinesumer.runtime.files import write_atomically

    try:
        if output == Path("-"):
            click.echo(content, nl=False)
        elif output.exists() and not output.is_file():
            # A pipe or a device must stay: a rename would replace it by a file.
            output.write_bytes(content)
        else:
            write_atomically(output, content, _mode(output))
    except OSError as error:
        # The reader of a pipe has gone: the path and the disk are fine.
        if isinstance(error, BrokenPipeError):
            raise
        raise KinesumerError(
            f"can't write {output}: {error.strerror}; check the path and the disk"
        ) from error


def _mode(path: Path) -> int:
    """Return the permissions of an existing file, or those of a new one."""
    if path.exists():
        return path.stat().st_mode & 0o777
    # The mask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


async def _read(common: CommonOptions) -> Positions:
    from kinesumer.admin.snapshot import read_snapshot
    from kinesumer.migration.positions import of_group
    from kinesumer.wire.rows import timestamp_text

    async with common.connect() as (_, store):
        rows = await read_snapshot(store, common.app)
    if rows.corrupt:
        raise KinesumerError("; ".join(rows.corrupt))
    if not rows.streams:
        raise KinesumerError(
            f"table {common.table} knows no app {common.app!r}; check --app, --table "
            "and --region"
        )
    for stream in rows.streams:
        # Before the first complete listing, a missing shard would not be noticed.
        if not stream.baseline:
            raise KinesumerError(
                f"the app's clients haven't listed all shards of stream {stream.arn} "
                "yet; start a client, then try again"
            )
    return of_group(common.app, timestamp_text(time.time()), rows.streams, rows.shards)


@click.group(
    "import",
    cls=DefaultCommandGroup,
    default="file",
    subcommand_metavar="FILE | kcl TABLE",
    help="""Import positions for an app from a file, or from a KCL fleet.

    \b
    kinesumer import FILE --app APP         what `kinesumer export` wrote, - for stdin
    kinesumer import kcl TABLE --app APP    the lease table of a KCL fleet
    """,
)
def import_() -> None:
    """Import positions for an app."""


@import_.command("file", hidden=True)
@click.argument("file", type=click.File("rb"))
@options.app
@options.table
@options.region
@options.streams
@options.roles
@options.dry_run
@options.yes
@options.as_json
@options.pass_common
def import_file(common: CommonOptions, file: BinaryIO) -> None:
    """Give an app the positions that `kinesumer export` wrote.

    Stop the app's clients first. The command looks each position up in its stream,
    shows the changes, and asks for confirmation.
    """
    from kinesumer.migration import positions
    from kinesumer.migration.takeover import narrowed, of_file

    roles = common.roles()
    content = file.read(positions.MAX_FILE_BYTES + 1)
    stored = narrowed(common.streams, positions.decode(content))

    async def draft(context: ClientContext, clients: ClientFactory) -> ImportPlan:
        return await of_file(context, file.name, stored, stream_opener(clients, roles))

    asyncio.run(import_positions(common, draft))


export.add_command(export_kcl)
import_.add_command(import_kcl)
