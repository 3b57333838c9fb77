"""``kinesumer export`` and ``kinesumer import``: positions in files and KCL tables."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import click

from kinesumer.aws.lease_table import open_table
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.sources import open_polled_source
from kinesumer.coordination.store_queries import unknown_app_text
from kinesumer.errors import KinesumerError
from kinesumer.model.times import parse_time
from kinesumer.ops.cli.console import checkpoint_text, progress
from kinesumer.ops.cli.options import ROLES, CommonOptions, FiniteFloat, command
from kinesumer.ops.group.connect import Roles, require_no_clients
from kinesumer.ops.group.snapshot import read_snapshot
from kinesumer.ops.migration import positions
from kinesumer.ops.migration.import_plan import ImportPlan, Open
from kinesumer.ops.migration.kcl_export import plan_kcl_export
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.files import write_atomically
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire.rows import timestamp_text

Draft = Callable[[ClientContext, ClientFactory], Awaitable[ImportPlan]]

HELP_OPTIONS = ("-h", "--help")
OPTIONS = ("app", "table", "region", "streams", *ROLES, "dry_run", "yes", "as_json")


class DefaultCommandGroup(click.Group):
    """A command group that runs ``file`` if the first argument isn't a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the name ``file`` where it is missing."""
        if not args or (args[0] not in self.commands and args[0] not in HELP_OPTIONS):
            args = ["file", *args]
        return super().parse_args(ctx, args)

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the options of ``file`` into the help, then the other commands."""
        default = self.commands["file"]
        default.format_options(click.Context(default, parent=ctx), formatter)
        self.format_commands(ctx, formatter)


@click.group(
    cls=DefaultCommandGroup,
    subcommand_metavar="[-o FILE] | kcl TABLE",
    help="""Export an app's positions to a file, or hand them to a KCL fleet.

    \b
    kinesumer export --app APP [-o FILE]    as JSON, for `kinesumer import FILE`
    kinesumer export kcl TABLE --app APP    into the lease table of a KCL fleet
    """,
)
def export() -> None:
    """Export an app's positions."""


@click.group(
    "import",
    cls=DefaultCommandGroup,
    subcommand_metavar="FILE | kcl TABLE",
    help="""Import positions for an app from a file, or from a KCL fleet.

    \b
    kinesumer import FILE --app APP         what `kinesumer export` wrote, - for stdin
    kinesumer import kcl TABLE --app APP    the lease table of a KCL fleet
    """,
)
def import_() -> None:
    """Import positions for an app."""


def _kcl_options(function: Callable[..., Any]) -> Callable[..., Any]:
    look = click.option(
        "--look",
        type=FiniteFloat(min=0),
        default=20.0,
        show_default=True,
        help="Seconds to observe the fleet's counters, which must not change. Use "
        "more than a third of the fleet's failover time.",
    )
    return click.argument("lease_table", metavar="TABLE")(look(function))


# --- export ---------------------------------------------------------------------------


@command("app", "table", "region", "streams", name="file", group=export, hidden=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default="-",
    help="The file to write. Default: standard output.",
)
async def export_file(common: CommonOptions, output: Path) -> None:
    """Write an app's position in each shard as JSON: see docs/positions.md.

    If clients are running, the command writes each shard's last commit. It doesn't
    call Kinesis.
    """
    app = common.app
    async with common.connect() as (_, store):
        with progress("reading positions"):
            rows = await read_snapshot(store, app)
    if rows.corrupt:
        raise KinesumerError("; ".join(rows.corrupt))
    if not rows.streams:
        raise KinesumerError(unknown_app_text(app, common.table))
    for stream in rows.streams:
        # Until all shards have been listed, a shard could be missing from the file.
        if not stream.baseline:
            raise KinesumerError(
                f"the app's clients haven't listed all shards of stream {stream.arn} "
                "yet; start a client, then try again"
            )
    now = timestamp_text(time.time())
    stored = positions.positions_of_group(app, now, rows.streams, rows.shards)
    _write(output, positions.encode(positions.select_streams(common.streams, stored)))


def _write(output: Path, content: bytes) -> None:
    """Write to standard output, a device, or a file, which is replaced atomically."""
    try:
        if output == Path("-"):
            click.echo(content, nl=False)
        elif output.exists() and not output.is_file():
            # An atomic write would replace a pipe or a device by a file.
            output.write_bytes(content)
        else:
            write_atomically(output, content, _mode(output))
    except BrokenPipeError:
        raise  # the reader closed the pipe, so the path and disk aren't the cause
    except OSError as error:
        raise KinesumerError(
            f"can't write {output}: {error.strerror}; check the path and the disk"
        ) from error


def _mode(path: Path) -> int:
    """Return a file's permissions, or the default ones if it doesn't exist."""
    if path.exists():
        return path.stat().st_mode & 0o777
    # umask() can only read the mask by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


@command(*OPTIONS, name="kcl", group=export)
@_kcl_options
async def export_kcl(common: CommonOptions, lease_table: str, look: float) -> None:
    """Write an app's positions into a KCL fleet's lease table.

    The fleet can then take over again. TABLE is the fleet's old lease table. Stop the
    app's clients and the fleet first. The command removes owners and pending
    checkpoints from the leases, and increments their counters. It doesn't change the
    app's own rows.
    """
    roles = common.roles()
    async with common.operate() as (context, clients):
        if not common.dry_run:
            # Live clients would advance their positions after these were copied.
            await require_no_clients(context)
        leases = await open_table(clients, lease_table)
        with progress("observing the fleet"):
            handover = await plan_kcl_export(
                context,
                _stream_opener(clients, roles),
                leases,
                common.streams,
                region=clients.region,
                watch_seconds=look,
            )
        if not common.as_json:
            report = handover.report(written=False)
            name = escape_unprintable(report["lease_table"])
            click.echo(f"into lease table {name}")
            _show_streams(report["streams"], "leases", "lease_key", _checkpoint_text)
        if not common.dry_run:
            common.confirm(f"Write these leases into table {lease_table}?")
            with progress("writing leases"):
                await handover.write(context)
    if common.as_json:
        common.print_report(handover.report(written=not common.dry_run), indent=None)
    elif common.dry_run:
        click.echo("dry run: nothing was written")
    else:
        click.echo(
            f"written and verified: the fleet may start; app {common.app} keeps its "
            "own positions"
        )


# --- import ---------------------------------------------------------------------------


@command(*OPTIONS, name="file", group=import_, hidden=True)
@click.argument("file", type=click.File("rb"))
async def import_file(common: CommonOptions, file: BinaryIO) -> None:
    """Give an app the positions that `kinesumer export` wrote.

    Stop the app's clients first. The command looks each position up in its stream,
    shows the changes, and asks for confirmation.
    """
    roles = common.roles()
    # One byte more than allowed shows decode() that the file is too large.
    stored = positions.decode(file.read(positions.MAX_FILE_BYTES + 1))
    stored = positions.select_streams(common.streams, stored)

    async def draft(context: ClientContext, clients: ClientFactory) -> ImportPlan:
        open_ = _stream_opener(clients, roles)
        return await positions.plan_file_import(context, file.name, stored, open_)

    await _import(common, draft)


@command(*OPTIONS, name="kcl", group=import_)
@_kcl_options
@click.option(
    "--start-at",
    metavar="TIME",
    help="Where to continue a lease whose checkpoint is AT_TIMESTAMP or LATEST: a time "
    "with its zone, or how long ago, such as 2h.",
)
async def import_kcl(
    common: CommonOptions, lease_table: str, look: float, start_at: str | None
) -> None:
    """Import the positions of a KCL fleet: 1.x, 2.x or 3.x, Java, Python or Rust.

    TABLE is the fleet's lease table. If it has no stream names, pass --stream. Stop the
    fleet and the app's clients first. The command looks each checkpoint up in its
    stream, shows what it will write, and asks for confirmation. It doesn't change the
    lease table.
    """
    roles, now = common.roles(), datetime.now(UTC)
    at = parse_time("--start-at", start_at, now).timestamp() if start_at else None

    async def draft(context: ClientContext, clients: ClientFactory) -> ImportPlan:
        leases = await open_table(clients, lease_table)
        return await positions.plan_kcl_import(
            context,
            _stream_opener(clients, roles),
            leases,
            common.streams,
            region=clients.region,
            start_at=at,
            watch_seconds=look,
        )

    await _import(common, draft)


async def _import(common: CommonOptions, draft: Draft) -> None:
    async with common.operate() as (context, clients):
        if not common.dry_run:
            # Live clients keep positions in memory, and wouldn't read imported ones.
            await require_no_clients(context)
        with progress("looking positions up"):
            takeover = await draft(context, clients)
        report = takeover.report(written=False)
        if not common.as_json:
            click.echo(f"from {escape_unprintable(takeover.source)}")
            _show_streams(report["streams"], "shards", "shard_id", _position_text)
        if takeover.problems:
            if common.as_json:
                common.print_report(report, indent=None)
            problems = "; ".join(takeover.problems)
            raise KinesumerError(
                f"nothing was written: {problems}; correct this, and try again"
            )
        is_written = not (common.dry_run or takeover.is_done)
        if is_written:
            common.confirm(f"Write these positions of app {common.app}?")
            with progress("writing positions"):
                await takeover.write(context)
    if common.as_json:
        common.print_report(takeover.report(written=is_written), indent=None)
    elif is_written:
        click.echo("written and verified")
    elif takeover.is_done:
        click.echo("nothing to do: the app has these positions")
    else:
        click.echo("dry run: nothing was written")


# --- both -----------------------------------------------------------------------------


def _stream_opener(clients: ClientFactory, roles: Roles) -> Open:
    """Return a function that opens a stream by its name or ARN."""
    return lambda name: open_polled_source(clients, roles.stream(name))


def _show_streams(
    streams: list[dict[str, Any]],
    rows: str,
    name: str,
    text: Callable[[dict[str, Any]], str],
) -> None:
    """Print the changed rows, the notes and the problems of each stream in a report.

    ``rows`` and ``name`` are the fields of a stream's rows, and of a row's name.
    """
    for stream in streams:
        counts = ", ".join(f"{n} to {what}" for what, n in stream["counts"].items())
        click.echo(f"\n{escape_unprintable(stream['stream_arn'])}: {counts}")
        for row in stream[rows]:
            if row["action"] != "keep":
                before = f"{text(row['before'])} → " if row["before"] else ""
                change = f"{before}{text(row['after'])}"
                click.echo(f"  {escape_unprintable(row[name])}  {change}")
        for mark, kind in ("note:", "notes"), ("!", "problems"):
            for line in stream.get(kind, ()):
                click.echo(f"  {mark} {escape_unprintable(line)}")
    click.echo("")


def _checkpoint_text(position: dict[str, Any]) -> str:
    text = str(position["checkpoint"])
    return f"{text}/{position['sub']}" if text.isdigit() else text


def _position_text(position: dict[str, Any]) -> str:
    if position["ended"]:
        return "ended"
    number, sub = position["sequence_number"], position["sub_sequence_number"]
    text = checkpoint_text(number, sub) or position["start"]
    return f"{text}, after its parents" if position["waits_for_parents"] else text
