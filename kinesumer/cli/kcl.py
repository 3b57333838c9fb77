"""``kinesumer import kcl`` and ``kinesumer export kcl``: move from and to KCL."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from kinesumer.admin.arguments import parse_time
from kinesumer.cli import options
from kinesumer.cli.import_plan import import_positions, show_streams, stream_opener
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.admin.connect import Roles
    from kinesumer.aws.session import ClientFactory
    from kinesumer.cli.options import CommonOptions
    from kinesumer.migration.kcl_export import ExportPlan
    from kinesumer.migration.takeover import ImportPlan
    from kinesumer.runtime.context import ClientContext


def _kcl_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        options.as_json,
        options.yes,
        options.dry_run,
        click.option(
            "--look",
            type=options.FiniteFloat(min=0),
            default=20.0,
            show_default=True,
            help="Seconds to observe the fleet's counters, which must not change. Use "
            "more than a third of the fleet's failover time.",
        ),
        options.roles,
        options.streams,
        options.region,
        options.table,
        options.app,
        click.argument("lease_table", metavar="TABLE"),
    ):
        command = option(command)
    return command


@click.command("kcl")
@_kcl_options
@click.option(
    "--start-at",
    metavar="TIME",
    help="Where to continue a lease whose checkpoint is AT_TIMESTAMP or LATEST: a time "
    "with its zone, or how long ago, such as 2h.",
)
@options.pass_common
def import_kcl(
    common: CommonOptions, lease_table: str, look: float, start_at: str | None
) -> None:
    """Import the positions of a KCL fleet: 1.x, 2.x or 3.x, Java, Python or Rust.

    TABLE is the fleet's lease table; that of one stream needs --stream. Stop the fleet
    and the app's clients first. The command looks each checkpoint up in its stream,
    shows what it will write, and asks for confirmation. It doesn't change the lease
    table.
    """
    from kinesumer.aws.kcl_table import open_leases
    from kinesumer.migration.kcl_import import LeaseImport

    roles, now = common.roles(), datetime.now(UTC)
    at = parse_time("--start-at", start_at, now).timestamp() if start_at else None

    async def draft(context: ClientContext, clients: ClientFactory) -> ImportPlan:
        leases = await open_leases(clients, lease_table)
        source = LeaseImport(leases, common.streams, clients.region, at, look)
        return await source.draft(context, stream_opener(clients, roles))

    asyncio.run(import_positions(common, draft))


@click.command("kcl")
@_kcl_options
@options.pass_common
def export_kcl(common: CommonOptions, lease_table: str, look: float) -> None:
    """Write an app's positions into a KCL fleet's lease table.

    The fleet can then take over again. TABLE is the table that the fleet had. Stop the
    app's clients and the fleet first. The command removes owners and pending
    checkpoints from the leases, and increments their counters. It doesn't change the
    app's own rows.
    """
    asyncio.run(_export(common, lease_table, common.roles(), look))


async def _export(
    common: CommonOptions, lease_table: str, roles: Roles, look: float
) -> None:
    from kinesumer.admin.context import require_no_clients
    from kinesumer.aws.kcl_table import open_leases
    from kinesumer.migration.kcl_export import LeaseExport

    async with common.operate() as (context, clients):
        if not common.dry_run:
            await require_no_clients(context)
        leases = await open_leases(clients, lease_table)
        export = LeaseExport(leases, common.streams, clients.region, look)
        handover = await export.draft(context, stream_opener(clients, roles))
        if not common.as_json:
            _show(handover)
        if not common.dry_run:
            common.confirm(f"Write these leases into table {lease_table}?")
            await handover.write(context)
        _show_result(common, handover)


def _show_result(common: CommonOptions, handover: ExportPlan) -> None:
    if common.as_json:
        report = handover.report(written=not common.dry_run)
        common.print_report(report, indent=None)
    elif common.dry_run:
        click.echo("dry run: nothing was written")
    else:
        click.echo(
            f"written and verified: the fleet may start; app {common.app} keeps its "
            "own positions"
        )


def _show(handover: ExportPlan) -> None:
    report = handover.report(written=False)
    click.echo(f"into lease table {escape_unprintable(report['lease_table'])}")
    show_streams(report["streams"], "leases", _change_text)


def _change_text(lease: dict[str, Any]) -> str:
    before = f"{_checkpoint_text(lease['before'])} → " if lease["before"] else ""
    after = _checkpoint_text(lease["after"])
    return f"{escape_unprintable(lease['lease_key'])}  {before}{after}"


def _checkpoint_text(position: dict[str, Any]) -> str:
    text = str(position["checkpoint"])
    return f"{text}/{position['sub']}" if text.isdigit() else text
