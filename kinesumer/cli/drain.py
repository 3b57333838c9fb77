"""``kinesumer drain``."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, NamedTuple

import click

from kinesumer.cli import options
from kinesumer.cli import target_options as common
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from kinesumer.model.rows import MemberRow, ShardRow


class Wanted(NamedTuple):
    """Whom to drain, and how."""

    client_id: str
    app: str
    table: str
    region: str | None
    undo: bool
    yes: bool


@click.command()
@click.argument("client_id", metavar="CLIENT")
@options.app
@click.option("--undo", is_flag=True, help="Let it have shards again.")
@click.option("--yes", is_flag=True, help="Also the last client that takes shards.")
@common.wait
@options.table
@options.region
@options.as_json
def drain(
    client_id: str,
    app: str,
    undo: bool,
    yes: bool,
    wait_seconds: float,
    table: str,
    region: str | None,
    as_json: bool,
) -> None:
    """Move a client's shards to the others, and keep it free of shards.

    It stays in the group, without shards, until --undo or until it is started again.
    The exit status is 1 if it still consumes some after --wait.
    """
    wanted = Wanted(client_id, app, table, region, undo, yes)
    before, left = asyncio.run(_drain(wanted, wait_seconds))
    if as_json:
        told = {
            "version": common.VERSION,
            "app": app,
            "table": table,
            "client_id": client_id,
            "drained": not undo,
            "was_drained": before.drained,
            "still_consumed": common.as_json(left),
        }
        click.echo(json.dumps(told, indent=2))
    elif undo:
        click.echo(f"{escape_unprintable(client_id)} may have shards again")
    else:
        click.echo(f"{escape_unprintable(client_id)} is drained")
        if wait_seconds and not left:
            click.echo("it consumes nothing")
    common.late(left, wait_seconds, "though drained")


async def _drain(
    wanted: Wanted, wait_seconds: float
) -> tuple[MemberRow, list[ShardRow]]:
    from kinesumer.admin import drain as admin_drain
    from kinesumer.admin.connect import connect
    from kinesumer.admin.context import operator_context
    from kinesumer.admin.wait import still_held_by, wait_until_free

    async with connect(wanted.table, wanted.region) as (_, store):
        context = operator_context(wanted.app, store)
        before = await admin_drain.drain(
            context, wanted.client_id, undo=wanted.undo, even_last=wanted.yes
        )
        if wanted.undo:
            return before, []
        return before, await wait_until_free(
            context, still_held_by(before), wait_seconds
        )
