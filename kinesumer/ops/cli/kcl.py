"""``kinesumer kcl cut-over``: leave the lease table of a KCL fleet, or return."""

from __future__ import annotations

import click

from kinesumer.aws.lease_table import open_table
from kinesumer.ops.cli.console import progress
from kinesumer.ops.cli.options import CommonOptions, FiniteFloat, command
from kinesumer.ops.group.connect import operator_context
from kinesumer.ops.migration.kcl_cut_over import CutOver, find_lease_table
from kinesumer.runtime.text import counted


@command("app", "table", "region", "yes")
@click.option("--back", is_flag=True, help="Return to the lease table.")
@click.option(
    "--look",
    type=FiniteFloat(min=0),
    default=20.0,
    show_default=True,
    help="Seconds to observe the leases of KCL workers, which must not change. Use "
    "more than a third of the fleet's failover time.",
)
async def kcl_cut_over(common: CommonOptions, back: bool, look: float) -> None:
    """Move an app's positions from a KCL fleet's lease table into its own table.

    No KCL worker may run. The app's clients go on consuming meanwhile. Then restart
    them one by one without --kcl-table. With --back, stop the clients first, and start
    them with --kcl-table, or KCL workers, afterwards.
    """
    async with common.connect() as (clients, store):
        context = operator_context(common.app, store.own)
        name = await find_lease_table(context, is_back=back)
        where = f"into lease table {name}" if back else f"out of lease table {name}"
        common.confirm(f"Move the positions of app {common.app} {where}?")
        cut_over = CutOver(context, await open_table(clients, name), name, look)
        with progress("moving shards"):
            moved = await (cut_over.move_back() if back else cut_over.move())
    shards = counted(moved, "shard")
    after = "with" if back else "without"
    click.echo(f"moved {shards} {where}: restart the clients {after} --kcl-table")
