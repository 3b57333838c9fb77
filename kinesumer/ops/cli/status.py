"""``kinesumer status``, ``lag``, ``distribution`` and ``health``: reports."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import click
from rich.console import RenderableType

from kinesumer.aws.dynamodb import open_store
from kinesumer.aws.lease_table import open_table
from kinesumer.errors import ConfigurationError, TransientError
from kinesumer.model.streams import stream_name
from kinesumer.model.validation import validate_name
from kinesumer.ops.cli.console import (
    Cell,
    console,
    name,
    plain,
    print_json,
    print_lines,
    progress,
    table,
)
from kinesumer.ops.cli.console import watch as watch_reports
from kinesumer.ops.cli.options import ROLES, CommonOptions, FiniteFloat, command
from kinesumer.ops.cli.tables import (
    lag_tables,
    show_distribution,
    status_picture,
    status_tables,
)
from kinesumer.ops.group.distribution import cluster_by, read_distribution, report
from kinesumer.ops.group.lag import LagMonitor
from kinesumer.ops.group.observation import MIN_INTERVAL_SECONDS, check_client
from kinesumer.ops.group.snapshot import AppSummary, apps_report, read_apps
from kinesumer.ops.group.status import StatusQuery
from kinesumer.ops.migration.kcl import distribution_of, read_table
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.text import escape_unprintable

T = TypeVar("T")

ALIVE_TEXTS: dict[bool | None, str] = {True: "alive", False: "dead", None: "unknown"}


@command("app", "table", "region", "as_json", "verbose", "lag", *ROLES)
@click.option(
    "--watch",
    is_flag=True,
    help="Repeat until stopped: clients and streams, or with --json one object per "
    "line.",
)
async def status(common: CommonOptions, watch: bool) -> None:
    """Show which client consumes which shard, and how far behind. Changes nothing.

    Waits for one heartbeat, about two seconds, to see which clients are alive. --watch
    draws clients and streams every few seconds, until q or Ctrl-C. The JSON is
    described in docs/status-json.md; with --watch it is one object per line.
    """
    query = StatusQuery(common.app, common.table, common.roles(), lag=common.lag)
    async with common.connect() as (clients, store):
        await _show_reports(
            common,
            lambda: query.read(clients, store),
            partial(status_tables, verbose=common.verbose),
            status_picture,
            MIN_INTERVAL_SECONDS if watch else None,
        )


@command("app", "table", "region", "as_json", *ROLES)
@click.option(
    "--interval",
    type=FiniteFloat(0.5),
    default=10.0,
    show_default=True,
    help="Seconds between two measurements.",
)
@click.option("--watch", is_flag=True, help="Repeat after each interval.")
async def lag(common: CommonOptions, interval: float, watch: bool) -> None:
    """Show how far each shard is behind, the trend, and when it will have caught up.

    Changes nothing, and reads only a little of each shard. Clients commit every five
    seconds, so lags vary by that much, and a longer --interval gives a better trend.
    With --watch, the trend is that of the last minute, and --json prints one object per
    line.
    """
    monitor = LagMonitor(common.app, common.table, common.roles())
    async with common.connect() as (clients, store):
        with progress(f"measuring twice, {interval:g} s apart"):
            await monitor.start(clients, store)
            await asyncio.sleep(interval)
        await _show_reports(
            common,
            lambda: monitor.read(clients, store),
            lag_tables,
            lag_tables,
            interval if watch else None,
        )


async def _show_reports(
    common: CommonOptions,
    read: Callable[[], Awaitable[T]],
    tables: Callable[[T], RenderableType],
    picture: Callable[[T, str], RenderableType],
    interval_seconds: float | None,
) -> None:
    """Show a report once, or repeatedly. A repeated report survives short outages.

    On a terminal, repeated reports are drawn in place by ``picture``.
    """
    # An error of the first read may be permanent, so it ends the command.
    with progress("reading shards and heartbeats"):
        report = await read()
    target = console()
    is_drawn = target.is_terminal and not (target.is_dumb_terminal or common.as_json)
    if is_drawn and interval_seconds is not None:
        await watch_reports(report, read, picture, interval_seconds)
        return

    def show(report: T) -> None:
        if common.as_json:
            print_json(report, indent=2 if interval_seconds is None else None)
        else:
            print_lines(tables(report), wide=common.verbose)

    show(report)
    while interval_seconds is not None:
        await asyncio.sleep(interval_seconds)
        try:
            show(await read())
        except TransientError as error:
            click.echo(f"{escape_unprintable(str(error))}; trying again", err=True)


@command("table", "region", *ROLES, "as_json")
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
    metavar="label|zone|prefix[:N]",
    help="What makes a cluster: the clients' label, the zone in the label or the "
    "client ID, or the first N parts of the ID (1). Default: label, with --kcl prefix.",
)
@click.option(
    "--throughput/--no-throughput",
    default=True,
    help="Read the throughput of each shard in the last seconds.",
)
async def distribution(
    common: CommonOptions,
    app: str | None,
    lease_table: str | None,
    by: str | None,
    throughput: bool,
) -> None:
    """Show how shards and throughput are spread over clients and clusters.

    Changes nothing, and needs no CloudWatch: it measures throughput from at most 256 KB
    of each shard. For a KCL 3.x fleet, it uses the figures in the workers' leases.
    """
    by = by or ("label" if lease_table is None else "prefix")
    cluster_by(by)
    if lease_table is not None:
        async with common.clients() as clients:
            with progress("reading the lease table"):
                leases = await open_table(clients, lease_table)
                spread = distribution_of(read_table(await leases.scan()))
        about = {"lease_table": lease_table}
    elif app is not None:
        roles = common.roles()
        async with common.connect() as (clients, store):
            with progress("measuring the throughput of shards"):
                spread = await read_distribution(
                    clients, store, app, roles, throughput=throughput
                )
        about = {"app": app, "table": common.table}
    else:
        raise ConfigurationError("pass either --app APP or --kcl TABLE")
    found = report(spread, by)
    if common.as_json:
        print_json(found, indent=None, **about)
    else:
        kind, name = next(iter(about.items()))
        show_distribution(f"{kind.replace('_', ' ')} {name}", found)


@command("app", "table", "region", "as_json")
@click.option(
    "--client-id",
    envvar="KINESUMER_CLIENT_ID",
    required=True,
    show_envvar=True,
    help="The client to check.",
)
@click.option(
    "--ready",
    is_flag=True,
    help="Succeed only if the client also takes part in the group.",
)
async def health(common: CommonOptions, client_id: str, ready: bool) -> None:
    """Exit with 0 if a client is alive, and with 1 if it isn't.

    Reads the client's row, waits about two seconds for a heartbeat, and reads the row
    again. If no heartbeat comes, the command watches for the duration of the client's
    lease. While the state store is unavailable the client counts as alive, but not as
    ready, because a restart wouldn't help.

    --json prints {"app", "client_id", "alive", "ready", "state", "why"}. "alive" is
    null if the state store was unavailable.
    """
    validate_name("client_id", client_id)
    # `common.connect()` would verify the table, one more request for each probe.
    async with common.clients() as clients:
        with progress("waiting for a heartbeat"):
            store = await open_store(clients, common.table)
            finding = await check_client(store, SystemClock(), common.app, client_id)
    if common.as_json:
        about = {"app": common.app, "client_id": client_id}
        click.echo(json.dumps({**about, **finding._asdict()}))
    else:
        text = ALIVE_TEXTS[finding.alive]
        if finding.alive:
            text += ", ready" if finding.ready else f", not ready ({finding.state})"
        print_lines(plain(f"{client_id} of {common.app}: {text}: {finding.why}"))
    if not (finding.ready if ready else finding.alive is not False):
        click.get_current_context().exit(1)


TITLES = "app", "clients", "shards", "unread", "streams", "state", "last seen"


@command("table", "region", "as_json")
async def apps(common: CommonOptions) -> None:
    """List every app of a table: its clients, streams and unread shards.

    Reads the whole table once, and changes nothing. An app whose clients have ended
    stays in the list until "kinesumer reset" deletes its rows.
    """
    async with common.connect() as (_, store):
        with progress("reading the table"):
            found = await read_apps(store, time.time())
    if common.as_json:
        print_json(apps_report(common.table, found))
        return
    title = plain(f"table {common.table}", "bold")
    listed = table(TITLES, [_row(app) for app in found])
    print_lines(title, listed if found else plain("no app has any rows"))


def _row(app: AppSummary) -> list[Cell]:
    bad = "red" if app.unread else ""
    return [
        name(app.app),
        str(app.clients),
        str(app.shards),
        plain(str(app.unread), bad),
        name(", ".join(map(stream_name, app.streams))),
        plain(", ".join(filter(None, ["paused" * app.paused, app.failures]))),
        app.last_seen,
    ]
