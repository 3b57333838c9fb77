"""``kinesumer init`` and ``kinesumer reset``: the state store's table and rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from kinesumer.aws.state_table import create_table
from kinesumer.errors import ConfigurationError
from kinesumer.ops.cli.console import progress
from kinesumer.ops.cli.options import command
from kinesumer.ops.group.reset import read_inventory, require_idle
from kinesumer.ops.group.reset import reset as reset_app
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from kinesumer.ops.cli.options import CommonOptions
    from kinesumer.ops.group.reset import Inventory


@command("table", "region", "as_json")
@click.option(
    "--point-in-time-recovery",
    is_flag=True,
    help="Let DynamoDB keep backups of the last 35 days. AWS bills them.",
)
@click.option(
    "--deletion-protection",
    is_flag=True,
    help="Let DynamoDB refuse to delete the table.",
)
async def init(
    common: CommonOptions, point_in_time_recovery: bool, deletion_protection: bool
) -> None:
    """Create the state store's table, or verify an existing table.

    The two protections may be turned on for an existing table, too.

    --json prints {"table", "region", "table_id", "created"}.
    """
    async with progress(f"creating table {common.table}"):
        made = await create_table(
            common.table,
            region=common.region,
            point_in_time_recovery=point_in_time_recovery,
            deletion_protection=deletion_protection,
        )
    if common.as_json:
        report = {
            "table": made.name,
            "region": made.region,
            "table_id": made.table_id,
            "created": made.created,
        }
        click.echo(json.dumps(report))
        return
    state = "created" if made.created else "exists and can be used"
    click.echo(f"table {made.name} in {made.region}: {state}")


@command("app", "yes", "table", "region", "as_json")
@click.option(
    "--with-go", is_flag=True, help="Delete the positions of Kinesumer for Go, too."
)
async def reset(common: CommonOptions, with_go: bool) -> None:
    """Delete all rows of an app, so that its clients start as a new group.

    The positions are lost, so save them first with `kinesumer export`. The command
    fails while a client is alive, and a client that starts meanwhile fails. If the
    command was interrupted, run it again.
    """
    async with common.operate() as (context, _):
        async with progress("reading the app's rows"):
            inventory = await read_inventory(context)
        if not (inventory.rows or (with_go and inventory.go_positions)):
            raise ConfigurationError(
                f"table {common.table} holds nothing of app {common.app!r}; check "
                "--app, --table and --region"
            )
        async with progress("waiting for the leases of dead clients"):
            await require_idle(context, with_go=with_go)
        _show(common, inventory, with_go)
        common.confirm(f"Delete all rows of app {common.app}?")
        # reset_app() checks again, as a client may have started during the question.
        async with progress("deleting rows"):
            inventory = await reset_app(context, with_go=with_go)
    if common.as_json:
        report = {
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
        common.print_report(report)
        return
    go = f" and {inventory.go_positions} of Go's" if with_go else ""
    click.echo(f"deleted {inventory.rows} rows{go}")


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
