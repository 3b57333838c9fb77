"""``kinesumer distribution``."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from kinesumer.cli import options
from kinesumer.cli.report_tables import console, plain
from kinesumer.cli.report_tables import table as new_table
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from kinesumer.admin.connect import Roles
    from kinesumer.admin.distribution import Distribution
    from kinesumer.cli.options import CommonOptions


@click.command()
@click.option(
    "--app",
    envvar="KINESUMER_APP",
    show_envvar=True,
    help="The group to report on; not with --kcl.",
)
@click.option(
    "--kcl", "lease_table", metavar="TABLE", help="Report on a KCL fleet's lease table."
)
@click.option(
    "--by",
    default=None,
    metavar="label|zone|prefix[:N]",
    help="What makes a cluster: the clients' label, the zone in the label or the "
    "client ID, or the first N parts of the ID (1). Default: label, with --kcl prefix.",
)
@click.option(
    "--throughput/--no-throughput",
    default=True,
    help="Read the throughput of each shard in the last seconds.",
)
@options.table
@options.region
@options.roles
@options.as_json
@options.pass_common
def distribution(
    common: CommonOptions,
    app: str | None,
    lease_table: str | None,
    by: str | None,
    throughput: bool,
) -> None:
    """Show how shards and throughput are spread over clients and clusters.

    Changes nothing, and needs no CloudWatch: it measures throughput from at most 256 KB
    of each shard. For a KCL fleet it uses what the workers write to their leases (3.x).
    """
    from kinesumer.admin.distribution import cluster_by, report

    by = by or ("label" if lease_table is None else "prefix")
    cluster_by(by)
    if lease_table is not None:
        spread = asyncio.run(_of_leases(lease_table, common.region))
        about = {"lease_table": lease_table}
    elif app is not None:
        spread = asyncio.run(_of_app(common, app, common.roles(), throughput))
        about = {"app": app, "table": common.table}
    else:
        raise ConfigurationError("pass either --app APP or --kcl TABLE")
    fields = report(spread, by)
    if common.as_json:
        click.echo(json.dumps({"version": fields.pop("version"), **about, **fields}))
    else:
        _show(next(iter(about.items())), fields)


async def _of_app(
    common: CommonOptions, app: str, roles: Roles, throughput: bool
) -> Distribution:
    from kinesumer.admin.distribution import read_distribution

    async with common.connect() as (clients, store):
        return await read_distribution(
            clients, store, app, roles, throughput=throughput
        )


async def _of_leases(lease_table: str, region: str | None) -> Distribution:
    from kinesumer.aws.kcl_table import open_leases
    from kinesumer.aws.session import ClientFactory
    from kinesumer.migration.kcl import read_table
    from kinesumer.migration.kcl_workers import spread_of

    async with ClientFactory(region=region) as clients:
        leases = await open_leases(clients, lease_table)
        return spread_of(read_table(await leases.scan()))


def _show(subject: tuple[str, str], report: dict[str, Any]) -> None:
    kind, name = subject
    total = f"{report['shards']} shards, {_rate_text(report['bytes_per_second'])}"
    clusters = new_table(
        report["by"], "clients", "shards", "fair", "a client", "throughput"
    )
    for row in report["clusters"]:
        clusters.add_row(
            plain(row["cluster"] or "(none)"),
            str(row["clients"]),
            str(row["shards"]),
            f"{row['fair_shards']:g}",
            f"{row['fewest_of_a_client']} to {row['most_of_a_client']}",
            _rate_text(row["bytes_per_second"]),
        )
    clients = new_table("client", report["by"], "shards", "throughput")
    for row in report["clients"]:
        clients.add_row(
            plain(row["client_id"]),
            plain(row["cluster"] or "(none)"),
            str(row["shards"]),
            _rate_text(row["bytes_per_second"]),
        )
    out = console()
    out.print(plain(f"{kind.replace('_', ' ')} {name}: {total}", "bold"))
    out.print(clusters, "", clients)
    if report["unowned"]:
        out.print(plain(f"! {report['unowned']} shards have no owner", "red"))
    for problem in report["problems"]:
        out.print(plain(f"! {problem}", "red"))


def _rate_text(bytes_per_second: float | None) -> str:
    if bytes_per_second is None:
        return "?"
    return f"{bytes_per_second / 1024:,.1f} KiB/s"
