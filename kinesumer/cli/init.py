"""``kinesumer init``."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click

from kinesumer.cli import options

if TYPE_CHECKING:
    from kinesumer.aws.dynamodb import DynamoStateStore


@click.command()
@options.table
@options.region
@options.as_json
def init(table: str, region: str | None, as_json: bool) -> None:
    """Create the state store's table, or verify that the one there can be used.

    With --json prints {"table", "region", "table_id", "created"}.
    """
    result = asyncio.run(_init(table, region))
    if as_json:
        click.echo(json.dumps(result))
        return
    done = "created" if result["created"] else "exists and can be used"
    click.echo(f"table {table} in {result['region']}: {done}")


async def _init(table: str, region: str | None) -> dict[str, object]:
    from kinesumer.aws.dynamodb import open_store
    from kinesumer.aws.session import ClientFactory

    async with ClientFactory(region=region) as clients:
        store = await open_store(clients, table)
        return {
            "table": table,
            "region": clients.region,
            **await _create(store, table),
        }


async def _create(store: DynamoStateStore, table: str) -> dict[str, object]:
    from kinesumer.aws.dynamodb_table import create_table
    from kinesumer.errors import StoreUnavailableError

    existed = await store.describe() is not None
    try:
        table_id = await create_table(store)
    except TimeoutError:
        raise StoreUnavailableError(
            f"table {table} isn't active after a minute; run the command again"
        ) from None
    return {"table_id": table_id, "created": not existed}
