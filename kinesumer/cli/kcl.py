"""``kinesumer import kcl`` and ``kinesumer export kcl``: to and fro a KCL fleet."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from kinesumer.admin.arguments import parse_time
from kinesumer.cli import options
from kinesumer.cli.confirm import agreed
from kinesumer.cli.import_plan import (
    Wanted,
    opening,
    print_json,
    show_streams,
    take_over,
)
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.admin.connect import Roles
    from kinesumer.aws.session import ClientFactory
    from kinesumer.migration.kcl_export import ExportPlan
    from kinesumer.migration.takeover import ImportPlan
    from kinesumer.runtime.context import ClientContext


def _common(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        options.as_json,
        options.yes,
        options.dry_run,
        click.option(
            "--look",
            type=options.Real(min=0),
            default=20.0,
            show_default=True,
            help="Seconds for which the fleet's counters must not move: more than a "
            "third of its failover time.",
        ),
        options.external_id,
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
@_common
@click.option(
    "--start-at",
    metavar="TIME",
    help="Where leases go on that have none but AT_TIMESTAMP or LATEST: a time with "
    "its zone, or how long ago, like 2h.",
)
def import_kcl(
    lease_table: str,
    app: str,
    table: str,
    region: str | None,
    stream: tuple[str, ...],
    role: tuple[str, ...],
    external_id: str | None,
    look: float,
    start_at: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Take the positions of a KCL fleet over: 1.x, 2.x or 3.x, Java, Python or Rust.

    TABLE is its lease table; that of one stream needs --stream. The fleet and the app's
    clients must be stopped. Each checkpoint is looked up in the stream first; what will
    be written is shown, and asked for. The lease table isn't changed.
    """
    from kinesumer.admin.connect import parse_roles
    from kinesumer.aws.kcl_table import open_leases
    from kinesumer.migration.kcl_import import LeaseImport

    roles = parse_roles(role, external_id)
    now = datetime.now(UTC)
    at = parse_time("--start-at", start_at, now).timestamp() if start_at else None

    async def drafting(context: ClientContext, clients: ClientFactory) -> ImportPlan:
        leases = await open_leases(clients, lease_table)
        wanted = LeaseImport(leases, stream, clients.region, at, look)
        return await wanted.draft(context, opening(clients, roles))

    asyncio.run(take_over(Wanted(app, table, region, dry_run, yes, as_json), drafting))


@click.command("kcl")
@_common
def export_kcl(
    lease_table: str,
    app: str,
    table: str,
    region: str | None,
    stream: tuple[str, ...],
    role: tuple[str, ...],
    external_id: str | None,
    look: float,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Write an app's positions into a KCL fleet's lease table, so that it can return.

    TABLE is the table that the fleet had. The app's clients and the fleet must be
    stopped. Leases lose their owners and pending checkpoints, and their counters go
    on. The app's own rows aren't changed.
    """
    from kinesumer.admin.connect import parse_roles

    wanted = Wanted(app, table, region, dry_run, yes, as_json)
    roles = parse_roles(role, external_id)
    asyncio.run(_export(wanted, lease_table, stream, roles, look))


async def _export(
    wanted: Wanted,
    lease_table: str,
    streams: tuple[str, ...],
    roles: Roles,
    look: float,
) -> None:
    from kinesumer.admin.connect import connect
    from kinesumer.admin.context import operator_context, require_no_clients
    from kinesumer.aws.kcl_table import open_leases
    from kinesumer.migration.kcl_export import LeaseExport

    async with connect(wanted.table, wanted.region) as (clients, store):
        context = operator_context(wanted.app, store)
        if not wanted.dry_run:
            await require_no_clients(context)
        leases = await open_leases(clients, lease_table)
        export = LeaseExport(leases, streams, clients.region, look)
        handover = await export.draft(context, opening(clients, roles))
        if not wanted.as_json:
            _show(handover)
        if not wanted.dry_run:
            question = f"Write these leases into table {lease_table}?"
            agreed(question, yes=wanted.yes)
            await handover.write(context)
        _tell(wanted, handover)


def _tell(wanted: Wanted, handover: ExportPlan) -> None:
    if wanted.as_json:
        print_json(wanted, handover.report(written=not wanted.dry_run))
    elif wanted.dry_run:
        click.echo("a dry run: nothing was written")
    else:
        click.echo(
            f"written and verified: the fleet may start; app {wanted.app} keeps its "
            "own positions"
        )


def _show(handover: ExportPlan) -> None:
    report = handover.report(written=False)
    click.echo(f"into lease table {escape_unprintable(report['lease_table'])}")
    show_streams(report["streams"], "leases", _change)


def _change(lease: dict[str, Any]) -> str:
    before = f"{_place(lease['before'])} → " if lease["before"] else ""
    return f"{escape_unprintable(lease['lease_key'])}  {before}{_place(lease['after'])}"


def _place(at: dict[str, Any]) -> str:
    text = str(at["checkpoint"])
    return f"{text}/{at['sub']}" if text.isdigit() else text
