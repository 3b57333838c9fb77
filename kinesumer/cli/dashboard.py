"""``kinesumer dashboard``."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import click

from kinesumer.cli import options

if TYPE_CHECKING:
    from kinesumer.admin.connect import Roles
    from kinesumer.dashboard.view_model import DashboardInfo


@click.command()
@options.app
@options.table
@options.region
@options.roles
@options.external_id
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Where to listen on 127.0.0.1; by default a free port.",
)
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Let whoever opens the printed link pause, drain and seek.",
)
def dashboard(
    app: str,
    table: str,
    region: str | None,
    role: tuple[str, ...],
    external_id: str | None,
    port: int,
    allow_changes: bool,
) -> None:
    """Serve a page on 127.0.0.1 that shows the fleet, until Ctrl-C.

    It reads the state store and the streams, and only while the page is open. Changes
    are refused unless --allow-changes is given; then the printed link opens them to one
    browser.
    """
    from kinesumer.admin.connect import parse_roles
    from kinesumer.dashboard.view_model import DashboardInfo

    about = DashboardInfo(app, table, control=allow_changes)
    asyncio.run(_serve(about, region, parse_roles(role, external_id), port))


async def _serve(
    about: DashboardInfo, region: str | None, roles: Roles, port: int
) -> None:
    from kinesumer.admin.connect import connect
    from kinesumer.dashboard.actions import ActionHandler
    from kinesumer.dashboard.auth import Guard
    from kinesumer.dashboard.fleet import StoreFleetSource
    from kinesumer.dashboard.poller import Poller
    from kinesumer.dashboard.server import Server, listen, serving
    from kinesumer.runtime.clock import SystemClock

    async with connect(about.table, region) as (clients, store):
        about = about._replace(region=clients.region or "")
        clock = SystemClock()
        fleet = StoreFleetSource(about.app, clients, store, clock, roles)
        watcher = Poller(about, fleet, clock)
        with listen(port) as opened:
            guard = Guard(opened.getsockname()[1])
            desk = (
                ActionHandler(about.app, clients, store, roles)
                if about.control
                else None
            )
            server = Server(watcher, guard, desk)
            async with serving(server, watcher, opened) as looking:
                click.echo(guard.link(about.control))
                await _until_signal(looking)


async def _until_signal(looking: asyncio.Task[None]) -> None:
    """Wait for Ctrl-C or SIGTERM; raise what the watcher fails with, if it does."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    stopped = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait(
        {stopped, looking}, return_when=asyncio.FIRST_COMPLETED
    )
    stopped.cancel()
    if looking in done:
        looking.result()
