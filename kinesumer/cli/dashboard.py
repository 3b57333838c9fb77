"""``kinesumer dashboard``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from kinesumer.cli import options

if TYPE_CHECKING:
    from kinesumer.admin.connect import Roles
    from kinesumer.cli.options import CommonOptions


@click.command()
@options.app
@options.table
@options.region
@options.roles
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port to listen on at 127.0.0.1. Default: a free port.",
)
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Allow the browser that opens the printed link to pause, drain and seek.",
)
@options.pass_common
def dashboard(common: CommonOptions, port: int, allow_changes: bool) -> None:
    """Serve a page on 127.0.0.1 that shows the fleet, until Ctrl-C.

    The page reads the state store and the streams, but only while it is open. Changes
    are refused without --allow-changes. With it, the printed link allows them to one
    browser.
    """
    asyncio.run(_serve(common, common.roles(), port, allow_changes))


async def _serve(
    common: CommonOptions, roles: Roles, port: int, allow_changes: bool
) -> None:
    from kinesumer.cli.signals import run_until_signal
    from kinesumer.dashboard.actions import ActionHandler
    from kinesumer.dashboard.auth import Guard
    from kinesumer.dashboard.poller import Poller, StoreFleetSource
    from kinesumer.dashboard.server import Server, listen, serving
    from kinesumer.dashboard.view_model import DashboardInfo
    from kinesumer.runtime.clock import SystemClock

    app = common.app
    async with common.connect() as (clients, store):
        about = DashboardInfo(
            app, common.table, clients.region or "", control=allow_changes
        )
        clock = SystemClock()
        fleet = StoreFleetSource(app, clients, store, clock, roles)
        poller = Poller(about, fleet, clock)
        with listen(port) as opened:
            guard = Guard(opened.getsockname()[1])
            actions = (
                ActionHandler(app, clients, store, roles) if allow_changes else None
            )
            server = Server(poller, guard, actions)
            async with serving(server, poller, opened) as polling:
                click.echo(guard.link(allow_changes))
                await run_until_signal(polling)
