"""``kinesumer lag``."""

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

    from kinesumer.admin.lag import LagMonitor


@click.command()
@options.app
@options.table
@options.region
@options.as_json
@click.option(
    "--interval",
    type=options.Real(0.5),
    default=10.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--watch", is_flag=True, help="Show it again after each interval.")
@options.roles
@options.external_id
def lag(
    app: str,
    table: str,
    region: str | None,
    as_json: bool,
    interval: float,
    watch: bool,
    role: tuple[str, ...],
    external_id: str | None,
) -> None:
    """Show how far each shard is behind, where that is going, and until when.

    It reads only, a little of each shard. Lags go up and down by the five seconds
    between two commits: a longer --interval tells the trend better. With --watch the
    trend is that of the last minute, and --json prints one object a line.
    """
    from kinesumer.admin.connect import parse_roles
    from kinesumer.admin.lag import LagMonitor

    question = LagMonitor(app, table, parse_roles(role, external_id))
    show = _shower(as_json, watch)
    asyncio.run(_lag(question, region, show, interval, watch))


def _shower(as_json: bool, watch: bool) -> Callable[[dict[str, Any]], None]:
    if as_json:
        indent = None if watch else 2
        return lambda found: click.echo(json.dumps(found, indent=indent))
    from kinesumer.cli.lag_tables import show, show_again

    return show_again if watch else show


async def _lag(
    question: LagMonitor,
    region: str | None,
    show: Callable[[dict[str, Any]], None],
    interval: float,
    watch: bool,
) -> None:
    from kinesumer.admin.connect import connect

    async with connect(question.table, region) as (clients, store):
        await question.begin(clients, store)
        await asyncio.sleep(interval)
        show(await question.answer(clients, store))
        while watch:
            await asyncio.sleep(interval)
            try:
                show(await question.answer(clients, store))
            except TransientError as error:
                click.echo(f"{escape_unprintable(str(error))}; trying again", err=True)
