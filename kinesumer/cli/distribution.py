"""``kinesumer distribution``."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from kinesumer.cli import options
from kinesumer.cli.console import console, plain
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from kinesumer.admin.connect import Roles
    from kinesumer.admin.distribution import Distribution


@click.command()
@click.option(
    "--app",
    envvar="KINESUMER_APP",
    show_envvar=True,
    help="The group to look at; not with --kcl.",
)
@click.option(
    "--kcl", "lease_table", metavar="TABLE", help="A KCL fleet's lease table instead."
)
@click.option(
    "--by",
    default=None,
    metavar="label|zone|prefix[:N]",
    help="What makes a cluster: the clients' label, the zone in it or in their ids, or "
    "the first N parts of their ids (1). By default label, and with --kcl prefix.",
)
@click.option(
    "--throughput/--no-throughput",
    default=True,
    help="Read what arrived in each shard in the last seconds.",
)
@options.table
@options.region
@options.roles
@options.external_id
@options.as_json
def distribution(
    app: str | None,
    lease_table: str | None,
    by: str | None,
    throughput: bool,
    table: str,
    region: str | None,
    role: tuple[str, ...],
    external_id: str | None,
    as_json: bool,
) -> None:
    """Show how shards and throughput are spread over clients and clusters.

    It reads only. No CloudWatch: up to 256 KB of each shard tell what arrives there; of
    a KCL fleet, what its workers note in their leases (3.x).
    """
    from kinesumer.admin.connect import parse_roles
    from kinesumer.admin.distribution import cluster_by, report

    if lease_table is None and app is None:
        raise ConfigurationError("say --app APP, or --kcl TABLE")
    by = by or ("label" if lease_table is None else "prefix")
    cluster_by(by)
    if lease_table is not None:
        found = asyncio.run(_of_leases(lease_table, region))
        about = {"lease_table": lease_table}
    else:
        assert app is not None
        roles = parse_roles(role, external_id)
        found = asyncio.run(_of_app(app, table, region, roles, throughput))
        about = {"app": app, "table": table}
    told = report(found, by)
    if as_json:
        click.echo(json.dumps({"version": told.pop("version"), **about, **told}))
    else:
        _show(next(iter(about.items())), told)


async def _of_app(
    app: str, table: str, region: str | None, roles: Roles, throughput: bool
) -> Distribution:
    from kinesumer.admin.connect import connect
    from kinesumer.admin.distribution import read_distribution

    async with connect(table, region) as (clients, store):
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


def _show(of: tuple[str, str], told: dict[str, Any]) -> None:
    out = console()
    rate = _rate(told["bytes_per_second"])
    shards = f"{told['shards']} shards, {rate}"
    out.print(plain(f"{of[0].replace('_', ' ')} {of[1]}: {shards}", "bold"))
    clusters = _table(told["by"], "clients", "shards", "fair", "a client", "throughput")
    for row in told["clusters"]:
        clusters.add_row(
            plain(row["cluster"] or "(none)"),
            str(row["clients"]),
            str(row["shards"]),
            f"{row['fair_shards']:g}",
            f"{row['fewest_of_a_client']} to {row['most_of_a_client']}",
            _rate(row["bytes_per_second"]),
        )
    clients = _table("client", told["by"], "shards", "throughput")
    for row in told["clients"]:
        clients.add_row(
            plain(row["client_id"]),
            plain(row["cluster"] or "(none)"),
            str(row["shards"]),
            _rate(row["bytes_per_second"]),
        )
    out.print(clusters, "", clients)
    if told["unowned"]:
        out.print(plain(f"! {told['unowned']} shards are nobody's", "red"))
    for problem in told["problems"]:
        out.print(plain(f"! {problem}", "red"))


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title)
    return table


def _rate(bytes_per_second: float | None) -> str:
    if bytes_per_second is None:
        return "?"
    return f"{bytes_per_second / 1024:,.1f} KiB/s"
