"""``kinesumer status``, ``lag`` and ``health``: reports on a running fleet."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from kinesumer.cli import options
from kinesumer.errors import TransientError
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesumer.admin.health import ClientHealth
    from kinesumer.cli.options import CommonOptions

    Show = Callable[[dict[str, Any]], None]

STATUS_INTERVAL_SECONDS = 2.0
UNHEALTHY = 1
ALIVE_TEXTS = {True: "alive", False: "dead", None: "unknown"}


@click.command()
@options.app
@options.table
@options.region
@options.as_json
@click.option(
    "--watch",
    is_flag=True,
    help="Repeat until stopped: a picture, or with --json one object per line.",
)
@options.lag
@options.roles
@options.pass_common
def status(common: CommonOptions, watch: bool) -> None:
    """Show which client consumes which shard, and how far behind. Changes nothing.

    Takes about two seconds, one heartbeat, to see which clients are alive. --watch
    draws the dashboard's picture every two seconds, until q or Ctrl-C. The JSON is
    described in docs/status-json.md; with --watch it is one object per line.
    """
    from kinesumer.admin.status import StatusQuery

    roles = common.roles()
    if watch and not common.as_json:
        from kinesumer.cli.terminal_view.screen import watch as draw

        asyncio.run(draw(common, roles))
        return

    async def run() -> None:
        query = StatusQuery(common.app, common.table, roles, lag=common.lag)
        async with common.connect() as (clients, store):
            await _print_reports(
                lambda: query.read(clients, store),
                show,
                STATUS_INTERVAL_SECONDS if watch else None,
            )

    if common.as_json:
        show = _json_printer(watch)
    else:
        from kinesumer.cli.report_tables import show_status as show
    asyncio.run(run())


@click.command()
@options.app
@options.table
@options.region
@options.as_json
@click.option(
    "--interval",
    type=options.FiniteFloat(0.5),
    default=10.0,
    show_default=True,
    help="Seconds between two measurements.",
)
@click.option("--watch", is_flag=True, help="Repeat after each interval.")
@options.roles
@options.pass_common
def lag(common: CommonOptions, interval: float, watch: bool) -> None:
    """Show how far each shard is behind, the trend, and when it will have caught up.

    Reads only, and little of each shard. Clients commit every five seconds, so lags
    vary by that much: a longer --interval gives a better trend. With --watch the trend
    is that of the last minute, and --json prints one object per line.
    """
    from kinesumer.admin.lag import LagMonitor

    monitor = LagMonitor(common.app, common.table, common.roles())

    async def run() -> None:
        async with common.connect() as (clients, store):
            await monitor.start(clients, store)
            await asyncio.sleep(interval)
            await _print_reports(
                lambda: monitor.read(clients, store),
                show,
                interval if watch else None,
            )

    if common.as_json:
        show = _json_printer(watch)
    else:
        from kinesumer.cli.report_tables import show_lag, show_lag_again

        show = show_lag_again if watch else show_lag
    asyncio.run(run())


def _json_printer(watch: bool) -> Show:
    indent = None if watch else 2
    return lambda report: click.echo(json.dumps(report, indent=indent))


async def _print_reports(
    read: Callable[[], Awaitable[dict[str, Any]]],
    show: Show,
    interval_seconds: float | None,
) -> None:
    """Read and show a report, once or at an interval; then survive short outages."""
    # The first read may fail for good, as a wrong --app does: it ends the command.
    show(await read())
    while interval_seconds is not None:
        await asyncio.sleep(interval_seconds)
        try:
            show(await read())
        except TransientError as error:
            click.echo(f"{escape_unprintable(str(error))}; trying again", err=True)


@click.command()
@options.app
@click.option(
    "--client-id",
    envvar="KINESUMER_CLIENT_ID",
    required=True,
    show_envvar=True,
    help="The client to check.",
)
@options.table
@options.region
@click.option(
    "--ready",
    is_flag=True,
    help="Succeed only if the client also takes part in the group.",
)
@options.as_json
@options.pass_common
def health(common: CommonOptions, client_id: str, ready: bool) -> None:
    """Exit with 0 if a client is alive, and with 1 if it isn't.

    Reads the client's row, waits for a heartbeat, and reads the row again: about two
    seconds. If no heartbeat comes, the command watches for the duration of the client's
    lease. While the state store is unavailable the client counts as alive, but not as
    ready, since a restart wouldn't help.

    --json prints {"app", "client_id", "alive", "ready", "state", "why"}. "alive" is
    null if the state store was unavailable.
    """
    finding = asyncio.run(_examine(common, client_id))
    if common.as_json:
        click.echo(json.dumps(finding.report(common.app, client_id)))
    else:
        click.echo(_health_text(finding, common.app, client_id))
    if not (finding.ready if ready else finding.alive is not False):
        click.get_current_context().exit(UNHEALTHY)


async def _examine(common: CommonOptions, client_id: str) -> ClientHealth:
    # Not `common.connect()`: each probe would pay a request to verify the table.
    from kinesumer.admin.health import check_client
    from kinesumer.aws.dynamodb import open_store
    from kinesumer.aws.session import ClientFactory
    from kinesumer.runtime.clock import SystemClock

    async with ClientFactory(region=common.region) as clients:
        store = await open_store(clients, common.table)
        return await check_client(store, SystemClock(), common.app, client_id)


def _health_text(finding: ClientHealth, app: str, client_id: str) -> str:
    text = ALIVE_TEXTS[finding.alive]
    if finding.alive:
        text += ", ready" if finding.ready else f", not ready ({finding.state})"
    return escape_unprintable(f"{client_id} of {app}: {text}: {finding.why}")
