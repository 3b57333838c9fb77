"""The command ``kinesumer apps``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kinesumer.ops.cli.console import name, plain, print_json, print_lines, table
from kinesumer.ops.cli.options import command
from kinesumer.ops.cli.progress import progress
from kinesumer.ops.group.apps import read_apps, report

if TYPE_CHECKING:
    from kinesumer.ops.cli.console import Cell
    from kinesumer.ops.cli.options import CommonOptions
    from kinesumer.ops.group.apps import AppSummary

TITLES = "app", "clients", "shards", "unread", "streams", "state", "last seen"


@command("table", "region", "as_json")
async def apps(common: CommonOptions) -> None:
    """List every app of a table: its clients, streams and unread shards.

    Reads the whole table once, and changes nothing. An app whose clients have ended
    stays in the list until "kinesumer reset" deletes its rows.
    """
    async with common.connect() as (_, store):
        async with progress("reading the table"):
            found = await read_apps(store, time.time())
    if common.as_json:
        print_json(report(common.table, found))
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
        name(", ".join(app.names)),
        plain(", ".join(filter(None, ["paused" * app.paused, app.failures]))),
        app.last_seen,
    ]
