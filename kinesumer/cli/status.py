"""``kinesumer status``."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from kinesumer.cli import options
from kinesumer.errors import TransientError
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.admin.status import StatusQuery

WATCH_SECONDS = 2.0


@click.command()
@options.app
@options.table
@options.region
@options.as_json
@click.option("--watch", is_flag=True, help="Go on: a picture, or a line of JSON.")
@options.lag
@options.roles
@options.external_id
def status(
    app: str,
    table: str,
    region: str | None,
    as_json: bool,
    watch: bool,
    lag: bool,
    role: tuple[str, ...],
    external_id: str | None,
) -> None:
    """Show who consumes what, and how far behind: it reads only.

    Takes about a heartbeat (two seconds), to see whose heart beats. --watch draws the
    dashboard's picture every two seconds, until q or Ctrl-C. --json is described in
    docs/status-json.md; with --watch it prints one object a line.
    """
    from kinesumer.admin.connect import parse_roles
    from kinesumer.admin.status import StatusQuery

    roles = parse_roles(role, external_id)
    if watch and not as_json:
        from kinesumer.cli.terminal_view.poller import watch as draw

        asyncio.run(draw(app, table, region, roles, lag=lag))
        return
    question = StatusQuery(app, table, roles, lag=lag)
    asyncio.run(_status(question, region, _shower(as_json, watch), watch))


def _shower(as_json: bool, watch: bool) -> Callable[[dict[str, Any]], None]:
    if as_json:
        indent = None if watch else 2
        return lambda found: click.echo(json.dumps(found, indent=indent))
    from kinesumer.cli.status_tables import show

    return show


async def _status(
    question: StatusQuery,
    region: str | None,
    show: Callable[[dict[str, Any]], None],
    watch: bool,
) -> None:
    from kinesumer.admin.connect import connect

    async with connect(question.table, region) as (clients, store):
        show(await question.answer(clients, store))
        while watch:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                show(await question.answer(clients, store))
            except TransientError as error:
                click.echo(f"{escape_unprintable(str(error))}; trying again", err=True)
