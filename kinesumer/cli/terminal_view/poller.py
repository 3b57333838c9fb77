"""Looks at a fleet with the dashboard's eyes, and draws what it sees."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from kinesumer.admin import snapshot
from kinesumer.admin.connect import Roles, connect
from kinesumer.admin.lag import Lags
from kinesumer.cli.terminal_view.screen import screen
from kinesumer.dashboard.fleet import StoreFleetSource, StreamMeasurements
from kinesumer.dashboard.model import State
from kinesumer.dashboard.poller import Poller
from kinesumer.dashboard.view_model import DashboardInfo
from kinesumer.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.cli.terminal_view.screen import Screen


class RowsOnly(StoreFleetSource):
    """A fleet of which Kinesis isn't asked anything."""

    async def measure(self, found: Snapshot) -> StreamMeasurements:
        """Return nothing."""
        return StreamMeasurements(Lags({}, {}), {})


async def watch(
    app: str, table: str, region: str | None, roles: Roles, *, lag: bool
) -> None:
    """Draw an app's fleet until somebody quits.

    Raises KinesumerError if it can't be seen at the start; later it tries again.
    """
    async with connect(table, region) as (clients, store):
        await snapshot.take_known(store, app, table)
        clock = SystemClock()
        fleet = (StoreFleetSource if lag else RowsOnly)(
            app, clients, store, clock, roles
        )
        about = DashboardInfo(app, table, clients.region or "")
        watcher = Poller(about, fleet, clock)
        quit_ = asyncio.Event()
        with screen(quit_.set) as shown:
            await _until_one_ends(watcher.run(), _show(watcher, shown), quit_.wait())


async def _show(watcher: Poller, shown: Screen) -> None:
    async for state in watcher.states():
        shown.show(msgspec.json.decode(state, type=State))


async def _until_one_ends(*works: Coroutine[Any, Any, object]) -> None:
    """Do several things until one is done or fails; the others are given up."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
