"""Commands that change the state store: init, reset, pause, resume, drain and seek."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from kinesumer.aws.dynamodb import create_table
from kinesumer.coordination import pauses
from kinesumer.coordination.pauses import PauseResult
from kinesumer.core.lineage import SeekStep
from kinesumer.errors import ConfigurationError
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import stream_name
from kinesumer.ops.cli.console import indented, plain, print_lines, progress
from kinesumer.ops.cli.options import (
    ROLES,
    TARGET,
    CommonOptions,
    command,
    named,
    shards_json,
)
from kinesumer.ops.group import changes
from kinesumer.ops.group import seek as admin_seek
from kinesumer.ops.group.connect import report_partial_failure
from kinesumer.ops.group.seek import SeekPlan, position_text
from kinesumer.ops.group.seek_counts import Count, count_seek, describe_seek
from kinesumer.ops.group.snapshot import Snapshot, read_snapshot
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.text import counted, escape_unprintable


async def _wait(
    common: CommonOptions, context: ClientContext, held: changes.FindHeld
) -> list[ShardRow]:
    """Wait for clients to apply a change. Return the shards that they still hold."""
    with progress("waiting until clients have applied the change"):
        return await changes.wait_until_free(context, held, common.wait_seconds)


# --- pause and resume -----------------------------------------------------------------


@command("app", *TARGET, "wait_seconds", "table", "region", "as_json")
@click.option("--reason", default="", help="Why, for people. `status` shows it.")
async def pause(common: CommonOptions, reason: str) -> None:
    """Stop all clients from consuming a shard, a stream or all streams of an app.

    Clients finish the records that user code holds, store positions, and release the
    shards. They stay in the group. A pause lasts until `resume`, even if clients
    restart.
    The exit status is 1 if clients still consume something after --wait.
    """
    common.require_target()
    async with common.operate() as (context, _):
        # The pause is stored now. The code below only waits until clients apply it.
        result = await pauses.pause(context, common.stream, common.shard, reason)
        held = await _wait(common, context, changes.still_held_in(result.target))
    if common.as_json:
        _print_pause(common, result, still_consumed=held)
    else:
        why = f": {escape_unprintable(reason)}" if reason else ""
        click.echo(f"{_subject(result)} paused{why}")
        if common.wait_seconds and not held:
            click.echo("no client consumes it")
    common.fail_if_still_held(held, "though paused")


@command("app", *TARGET, "table", "region", "as_json")
async def resume(common: CommonOptions) -> None:
    """End the pause of a shard, a stream or all streams of an app.

    Other pauses remain: --all doesn't resume a stream that has its own pause.
    """
    common.require_target()
    async with common.operate() as (context, _):
        result = await pauses.resume(context, common.stream, common.shard)
        # Other pauses of a wider or narrower scope may still cover these shards.
        snapshot = await read_snapshot(context.store, common.app)
    still = [
        row
        for row in snapshot.rows
        if result.target.covers(row) and not row.ended and snapshot.pause(row)
    ]
    if common.as_json:
        _print_pause(common, result, still_paused=still)
        return
    click.echo(f"{_subject(result)} {'resumed' if result.was_paused else 'not paused'}")
    if still:
        text = _pauses_text(still, snapshot)
        click.echo(f"! still paused otherwise: {text}", err=True)


def _pauses_text(shards: list[ShardRow], snapshot: Snapshot) -> str:
    """Describe the pauses that still apply to these shards."""
    texts = dict.fromkeys(
        {
            "all": "all streams",
            "stream": f"stream {stream_name(row.key.stream_arn)}",
            "shard": row.key.shard_id,
        }[pause.scope]
        + (f" ({pause.reason})" if pause.reason else "")
        for row in shards
        if (pause := snapshot.pause(row)) is not None
    )
    return escape_unprintable(", ".join(texts))


def _subject(result: PauseResult) -> str:
    return f"{result.target} {'is' if result.target.stream_arn else 'are'}"


def _print_pause(
    common: CommonOptions, result: PauseResult, **still: list[ShardRow]
) -> None:
    report = {
        "stream_arn": result.target.stream_arn or None,
        "shard_id": result.target.shard_id or None,
        "paused": result.paused,
        "reason": result.reason if result.paused else None,
        "was_paused": result.was_paused,
        "was_reason": result.was_reason if result.was_paused else None,
    }
    common.print_report(report | {k: shards_json(rows) for k, rows in still.items()})


# --- drain ----------------------------------------------------------------------------


@command("app", "wait_seconds", "table", "region", "as_json")
@click.argument("client_id", metavar="CLIENT")
@click.option("--undo", is_flag=True, help="Let the client have shards again.")
@click.option(
    "--yes", is_flag=True, help="Drain even the last client that takes shards."
)
async def drain(common: CommonOptions, client_id: str, undo: bool, yes: bool) -> None:
    """Move a client's shards to the other clients, and give it no new ones.

    The client stays in the group without shards until --undo or until it restarts. The
    exit status is 1 if it still consumes shards after --wait.
    """
    held: list[ShardRow] = []
    async with common.operate() as (context, _):
        before = await changes.drain(context, client_id, undo=undo, even_last=yes)
        if not undo:
            held = await _wait(common, context, changes.still_held_by(before))
    if common.as_json:
        report = {
            "client_id": client_id,
            "drained": not undo,
            "was_drained": before.drained,
            "still_consumed": shards_json(held),
        }
        common.print_report(report)
    elif undo:
        click.echo(f"{escape_unprintable(client_id)} may have shards again")
    else:
        click.echo(f"{escape_unprintable(client_id)} is drained")
        if common.wait_seconds and not held:
            click.echo("it consumes nothing")
    common.fail_if_still_held(held, "though drained")


# --- seek -----------------------------------------------------------------------------


@command(
    *("app", *TARGET, "dry_run", "yes", "wait_seconds", "table", "region"),
    *(*ROLES, "as_json"),
)
@click.option(
    "--to",
    required=True,
    metavar="PLACE",
    help="LATEST, TRIM_HORIZON, a time (2026-01-31T12:00:00Z, or 2h for two hours "
    "ago), or after a position in the --shard: SEQUENCENUMBER[:SUBSEQUENCENUMBER].",
)
async def seek(common: CommonOptions, to: str) -> None:
    """Move an app's positions back or forward, whether clients run or not.

    Clients deliver all records after PLACE, even records delivered before. They
    skip the records between a position and a later PLACE. Except with LATEST, shards
    that have ended are read again, before their children. The exit status is 1 if
    clients still read from the old positions after --wait (they will apply the seek
    later), or if another seek moved some of the shards at the same time.
    """
    common.require_target()
    place = admin_seek.parse_position(to, common.shard), common.stream, common.shard
    roles = common.roles()
    seeked, held, overtaken = list[ShardRow](), list[ShardRow](), list[ShardRow]()
    async with common.operate() as (context, clients):
        # All streams are planned first: if one can't be read, nothing is changed.
        with progress("reading positions"):
            plans = await admin_seek.plan_seeks(context, clients, roles, *place)
        # Counting reads the streams, so it is done only if a person needs the counts.
        is_counted = common.dry_run or not common.yes
        for plan in plans:
            with progress("counting skipped and re-read records"):
                counts = await count_seek(plan) if is_counted else None
            _show_seek(plan, counts, err=common.as_json)
        if not common.dry_run:
            common.confirm("Seek?")
            with report_partial_failure(
                "some shards may have been moved; run the command again"
            ):
                with progress("moving positions"):
                    for plan in plans:
                        seeked += await admin_seek.seek(context, plan)
            held = await _wait(common, context, changes.still_held_since(seeked))
            # Checked last, since another seek may have run during the wait.
            overtaken = await admin_seek.conflicting_seeks(context, plans, seeked)
    if common.as_json:
        report = {
            "dry_run": common.dry_run,
            "streams": list(map(_seek_report, plans)),
            "seeked": len(seeked),
            "still_consumed": shards_json(held),
            "overtaken": shards_json(overtaken),
        }
        common.print_report(report)
    elif common.dry_run:
        click.echo("dry run: nothing was changed")
    else:
        click.echo(f"moved {counted(len(seeked), 'shard')}")
        ended = sum(len(plan.steps) for plan in plans) - len(seeked)
        if ended > 0:
            click.echo(
                f"left {counted(ended, 'shard')}, which had ended in the meantime"
            )
        if common.wait_seconds and not held:
            click.echo("no client reads from the old positions")
    if overtaken:
        click.echo(
            f"! another seek has moved {counted(len(overtaken), 'shard')} since: "
            f"{named(overtaken)}; seek again if that wasn't intended",
            err=True,
        )
    common.fail_if_still_held(held, "from the old positions")
    if overtaken:
        click.get_current_context().exit(1)


def _show_seek(
    plan: SeekPlan, counts: Mapping[str, Count] | None, *, err: bool
) -> None:
    title, *lines = describe_seek(plan, counts)
    print_lines(plain(title, "bold"), *map(indented, lines), err=err)


def _seek_report(plan: SeekPlan) -> dict[str, Any]:
    shards, to = list(map(_shard_report, plan.steps)), position_text(plan.to)
    return {"stream_arn": plan.stream.arn, "to": to, "shards": shards}


def _shard_report(step: SeekStep) -> dict[str, Any]:
    row = step.row
    return {
        "shard_id": row.key.shard_id,
        "from": None if step.is_new else position_text(row.position or row.start),
        "ended": row.ended,
        "waits": step.waits,
        "owner": row.owner_id or None,
        "epoch": row.epoch,
    }


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
    with progress(f"creating table {common.table}"):
        made = await create_table(
            common.table,
            region=common.region,
            point_in_time_recovery=point_in_time_recovery,
            deletion_protection=deletion_protection,
        )
    if common.as_json:
        ids = {"region": made.region, "table_id": made.table_id}
        click.echo(json.dumps({"table": made.name, **ids, "created": made.created}))
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
        with progress("reading the app's rows"):
            inventory = await changes.read_inventory(context)
        if not (inventory.rows or (with_go and inventory.go_positions)):
            raise ConfigurationError(
                f"table {common.table} holds nothing of app {common.app!r}; check "
                "--app, --table and --region"
            )
        with progress("waiting for the leases of dead clients"):
            await changes.require_idle(context, with_go=with_go)
        _show(common, inventory, with_go)
        common.confirm(f"Delete all rows of app {common.app}?")
        # reset() checks again, as a client may have started during the question.
        with progress("deleting rows"):
            inventory = await changes.reset(context, with_go=with_go)
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


def _show(common: CommonOptions, inventory: changes.Inventory, with_go: bool) -> None:
    table = escape_unprintable(common.table)
    click.echo(f"app {common.app} in table {table}:", err=True)
    for stream in inventory.streams:
        shards = f"{len(stream.shards)} shards, {stream.positions} with positions"
        click.echo(f"  stream {escape_unprintable(stream.arn)}: {shards}", err=True)
    click.echo(f"  {len(inventory.members)} clients, all dead", err=True)
    if count := inventory.go_positions:
        change = "deleted too" if with_go else "kept: clients will start there"
        click.echo(f"  {count} positions of Kinesumer for Go: {change}", err=True)
