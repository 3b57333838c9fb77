"""``kinesumer reset``."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kinesumer.cli import options
from kinesumer.cli.confirm import agreed
from kinesumer.errors import ConfigurationError
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from kinesumer.admin.reset import Inventory

VERSION = 1


class Wanted(NamedTuple):
    """What is to be deleted."""

    app: str
    table: str
    region: str | None
    with_go: bool
    yes: bool
    as_json: bool


@click.command()
@options.app
@click.option(
    "--with-go", is_flag=True, help="Also the positions that Kinesumer for Go left."
)
@options.yes
@options.table
@options.region
@options.as_json
def reset(
    app: str,
    with_go: bool,
    yes: bool,
    table: str,
    region: str | None,
    as_json: bool,
) -> None:
    """Delete all that an app has stored: its clients begin as if they were new.

    Positions are gone for good: `kinesumer export` keeps a copy. Refused while a client
    lives; one that starts meanwhile is refused. If it is interrupted, run it again.
    """
    wanted = Wanted(app, table, region, with_go, yes, as_json)
    found = asyncio.run(_reset(wanted))
    if as_json:
        click.echo(json.dumps(_report(wanted, found), indent=2))
        return
    go = f" and {found.go_positions} of Go's" if with_go else ""
    click.echo(f"deleted {found.rows} rows{go}")


async def _reset(wanted: Wanted) -> Inventory:
    from kinesumer.admin.connect import connect
    from kinesumer.admin.context import operator_context
    from kinesumer.admin.reset import read_inventory, require_idle, reset

    async with connect(wanted.table, wanted.region) as (_, store):
        context = operator_context(wanted.app, store)
        found = await read_inventory(context)
        if not (found.rows or (wanted.with_go and found.go_positions)):
            raise ConfigurationError(
                f"table {wanted.table} holds nothing of app {wanted.app!r}; check "
                "--app, --table and --region"
            )
        await require_idle(context, with_go=wanted.with_go)
        _show(wanted, found)
        agreed(f"Delete all of app {wanted.app}?", yes=wanted.yes)
        return await reset(context, with_go=wanted.with_go)


def _show(wanted: Wanted, found: Inventory) -> None:
    click.echo(
        f"app {wanted.app} in table {escape_unprintable(wanted.table)}:", err=True
    )
    for stream in found.streams:
        click.echo(
            f"  stream {escape_unprintable(stream.arn)}: {len(stream.shards)} shards, "
            f"{stream.positions} with positions",
            err=True,
        )
    click.echo(f"  {len(found.members)} clients, all dead", err=True)
    if found.go_positions:
        fate = "go too" if wanted.with_go else "stay: clients will begin there"
        click.echo(
            f"  {found.go_positions} positions of Kinesumer for Go {fate}", err=True
        )


def _report(wanted: Wanted, found: Inventory) -> dict[str, Any]:
    return {
        "version": VERSION,
        "app": wanted.app,
        "table": wanted.table,
        "deleted_rows": found.rows,
        "members": len(found.members),
        "streams": [
            {
                "stream_arn": stream.arn,
                "shards": len(stream.shards),
                "positions": stream.positions,
                "go_positions": len(stream.go),
            }
            for stream in found.streams
        ],
        "go_positions_deleted": wanted.with_go,
    }
