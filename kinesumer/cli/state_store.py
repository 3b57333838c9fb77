"""``kinesumer init`` and ``kinesumer reset``: the state store's table and rows."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from kinesumer.cli import options
from kinesumer.errors import ConfigurationError, StoreUnavailableError
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from kinesumer.admin.reset import Inventory
    from kinesumer.cli.options import CommonOptions


@click.command()
@options.table
@options.region
@options.as_json
@options.pass_common
def init(common: CommonOptions) -> None:
    """Create the state store's table, or verify an existing table.

    --json prints {"table", "region", "table_id", "created"}.
    """
    result = asyncio.run(_init(common))
    if common.as_json:
        click.echo(json.dumps(result))
        return
    state = "created" if result["created"] else "exists and can be used"
    click.echo(f"table {common.table} in {result['region']}: {state}")


async def _init(common: CommonOptions) -> dict[str, object]:
    from kinesumer.aws.dynamodb import create_table, open_store
    from kinesumer.aws.session import ClientFactory

    async with ClientFactory(region=common.region) as clients:
        store = await open_store(clients, common.table)
        existed = await store.describe() is not None
        try:
            table_id = await create_table(store)
        except TimeoutError:
            raise StoreUnavailableError(
                f"table {common.table} isn't active after a minute; run the command "
                "again"
            ) from None
        return {
            "table": common.table,
            "region": clients.region,
            "table_id": table_id,
            "created": not existed,
        }


@click.command()
@options.app
@click.option(
    "--with-go", is_flag=True, help="Delete the positions of Kinesumer for Go, too."
)
@options.yes
@options.table
@options.region
@options.as_json
@options.pass_common
def reset(common: CommonOptions, with_go: bool) -> None:
    """Delete all rows of an app, so that its clients start as a new group.

    Positions are lost: `kinesumer export` writes a copy. The command fails while a
    client is alive, and a client that starts meanwhile fails. After an interruption,
    run the command again.
    """
    inventory = asyncio.run(_reset(common, with_go))
    if common.as_json:
        common.print_report(_fields(inventory, with_go))
        return
    go = f" and {inventory.go_positions} of Go's" if with_go else ""
    click.echo(f"deleted {inventory.rows} rows{go}")


async def _reset(common: CommonOptions, with_go: bool) -> Inventory:
    from kinesumer.admin.reset import read_inventory, require_idle, reset

    async with common.operate() as (context, _):
        inventory = await read_inventory(context)
        if not (inventory.rows or (with_go and inventory.go_positions)):
            raise ConfigurationError(
                f"table {common.table} holds nothing of app {common.app!r}; check "
                "--app, --table and --region"
            )
        await require_idle(context, with_go=with_go)
        _show(common, inventory, with_go)
        common.confirm(f"Delete all rows of app {common.app}?")
        return await reset(context, with_go=with_go)


def _show(common: CommonOptions, inventory: Inventory, with_go: bool) -> None:
    lines = [f"app {common.app} in table {escape_unprintable(common.table)}:"]
    lines += [
        f"  stream {escape_unprintable(stream.arn)}: {len(stream.shards)} shards, "
        f"{stream.positions} with positions"
        for stream in inventory.streams
    ]
    lines.append(f"  {len(inventory.members)} clients, all dead")
    if inventory.go_positions:
        change = "deleted too" if with_go else "kept: clients will start there"
        lines.append(
            f"  {inventory.go_positions} positions of Kinesumer for Go: {change}"
        )
    click.echo("\n".join(lines), err=True)


def _fields(inventory: Inventory, with_go: bool) -> dict[str, Any]:
    return {
        "deleted_rows": inventory.rows,
        "members": len(inventory.members),
        "streams": [
            {
                "stream_arn": stream.arn,
                "shards": len(stream.shards),
                "positions": stream.positions,
                "go_positions": len(stream.go),
            }
            for stream in inventory.streams
        ],
        "go_positions_deleted": with_go,
    }
