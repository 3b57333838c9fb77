"""``kinesumer pause``, ``kinesumer resume`` and ``kinesumer drain``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from kinesumer.cli import options
from kinesumer.coordination import pauses
from kinesumer.model.streams import stream_name
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.cli.options import CommonOptions
    from kinesumer.coordination.pauses import PauseResult
    from kinesumer.model.rows import MemberRow, ShardRow


@click.command()
@options.app
@options.target
@click.option("--reason", default="", help="Why, for people. `status` shows it.")
@options.wait
@options.table
@options.region
@options.as_json
@options.pass_common
def pause(common: CommonOptions, reason: str) -> None:
    """Stop all clients from consuming a shard, a stream or all streams of an app.

    Clients finish the records that user code holds, store positions, and release the
    shards. They stay in the group. A pause lasts until `resume`, also over restarts.
    The exit status is 1 if clients still consume something after --wait.
    """
    common.require_target()
    result, held = asyncio.run(_pause(common, reason))
    if common.as_json:
        fields = {"still_consumed": options.shards_json(held)}
        common.print_report({**_fields(result), **fields})
    else:
        why = f": {escape_unprintable(reason)}" if reason else ""
        click.echo(f"{_subject(result)} paused{why}")
        if common.wait_seconds and not held:
            click.echo("no client consumes it")
    common.fail_if_still_held(held, "though paused")


@click.command()
@options.app
@options.target
@options.table
@options.region
@options.as_json
@options.pass_common
def resume(common: CommonOptions) -> None:
    """End the pause of a shard, a stream or all streams of an app.

    Other pauses stay. --all doesn't resume a stream that was paused by itself.
    """
    common.require_target()
    result, snapshot = asyncio.run(_resume(common))
    still = _still_paused(result, snapshot)
    if common.as_json:
        fields = {"still_paused": options.shards_json(still)}
        common.print_report({**_fields(result), **fields})
        return
    change = "resumed" if result.was_paused else "not paused"
    click.echo(f"{_subject(result)} {change}")
    if still:
        text = _pauses_text(still, snapshot)
        click.echo(f"! still paused otherwise: {text}", err=True)


async def _pause(
    common: CommonOptions, reason: str
) -> tuple[PauseResult, list[ShardRow]]:
    from kinesumer.admin.wait import still_held_in, wait_until_free

    async with common.operate() as (context, _):
        result = await pauses.pause(context, common.stream, common.shard, reason)
        held = still_held_in(result.target)
        return result, await wait_until_free(context, held, common.wait_seconds)


async def _resume(common: CommonOptions) -> tuple[PauseResult, Snapshot]:
    from kinesumer.admin.snapshot import read_snapshot

    async with common.operate() as (context, _):
        result = await pauses.resume(context, common.stream, common.shard)
        return result, await read_snapshot(context.store, common.app)


def _still_paused(result: PauseResult, snapshot: Snapshot) -> list[ShardRow]:
    rows = [row for page in snapshot.shards.values() for row in page]
    return [
        row
        for row in rows
        if result.target.covers(row) and not row.ended and snapshot.pause(row)
    ]


def _pauses_text(shards: list[ShardRow], snapshot: Snapshot) -> str:
    """Return the pauses that still hold these shards."""
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


def _fields(result: PauseResult) -> dict[str, Any]:
    return {
        "stream_arn": result.target.stream_arn or None,
        "shard_id": result.target.shard_id or None,
        "paused": result.paused,
        "reason": result.reason if result.paused else None,
        "was_paused": result.was_paused,
        "was_reason": result.was_reason if result.was_paused else None,
    }


@click.command()
@click.argument("client_id", metavar="CLIENT")
@options.app
@click.option("--undo", is_flag=True, help="Let the client have shards again.")
@click.option(
    "--yes", is_flag=True, help="Drain even the last client that takes shards."
)
@options.wait
@options.table
@options.region
@options.as_json
@options.pass_common
def drain(common: CommonOptions, client_id: str, undo: bool, yes: bool) -> None:
    """Move a client's shards to the other clients, and give it none.

    The client stays in the group without shards until --undo or until it restarts. The
    exit status is 1 if it still consumes shards after --wait.
    """
    before, held = asyncio.run(_drain(common, client_id, undo=undo, even_last=yes))
    if common.as_json:
        fields = {
            "client_id": client_id,
            "drained": not undo,
            "was_drained": before.drained,
            "still_consumed": options.shards_json(held),
        }
        common.print_report(fields)
    elif undo:
        click.echo(f"{escape_unprintable(client_id)} may have shards again")
    else:
        click.echo(f"{escape_unprintable(client_id)} is drained")
        if common.wait_seconds and not held:
            click.echo("it consumes nothing")
    common.fail_if_still_held(held, "though drained")


async def _drain(
    common: CommonOptions, client_id: str, *, undo: bool, even_last: bool
) -> tuple[MemberRow, list[ShardRow]]:
    from kinesumer.admin import drain as admin_drain
    from kinesumer.admin.wait import still_held_by, wait_until_free

    async with common.operate() as (context, _):
        before = await admin_drain.drain(
            context, client_id, undo=undo, even_last=even_last
        )
        if undo:
            return before, []
        held = still_held_by(before)
        return before, await wait_until_free(context, held, common.wait_seconds)
