"""``kinesumer pause`` and ``kinesumer resume``."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kinesumer.cli import options
from kinesumer.cli import target_options as common
from kinesumer.coordination import pauses
from kinesumer.model.streams import stream_name
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.coordination.pauses import PauseResult
    from kinesumer.model.rows import ShardRow


class Wanted(NamedTuple):
    """What is to be paused or resumed, and where."""

    app: str
    table: str
    region: str | None
    stream: str | None
    shard: str | None
    as_json: bool


@click.command()
@options.app
@common.target
@click.option("--reason", default="", help="Why, for people: status shows it.")
@common.wait
@options.table
@options.region
@options.as_json
def pause(
    app: str,
    stream: str | None,
    shard: str | None,
    everything: bool,
    reason: str,
    wait_seconds: float,
    table: str,
    region: str | None,
    as_json: bool,
) -> None:
    """Have nobody consume a shard, a stream or all of an app, until resumed.

    Clients finish what is in user code, store positions, and release the shards; they
    stay in the group. A pause outlives restarts. The exit status is 1 if some are still
    consumed after --wait.
    """
    common.check_target(stream, shard, everything)
    wanted = Wanted(app, table, region, stream, shard, as_json)
    marked, left = asyncio.run(_pause(wanted, reason, wait_seconds))
    if as_json:
        told = {**_report(wanted, marked), "still_consumed": common.as_json(left)}
        click.echo(json.dumps(told, indent=2))
    else:
        why = f": {escape_unprintable(reason)}" if reason else ""
        click.echo(f"{_be(marked)} paused{why}")
        if wait_seconds and not left:
            click.echo("nobody consumes it")
    common.late(left, wait_seconds, "though paused")


@click.command()
@options.app
@common.target
@options.table
@options.region
@options.as_json
def resume(
    app: str,
    stream: str | None,
    shard: str | None,
    everything: bool,
    table: str,
    region: str | None,
    as_json: bool,
) -> None:
    """End the pause of a shard, a stream or all of an app.

    Other pauses stay: a stream that was paused by itself stays so after --all.
    """
    common.check_target(stream, shard, everything)
    wanted = Wanted(app, table, region, stream, shard, as_json)
    marked, found = asyncio.run(_resume(wanted))
    left = _still_paused(marked, found)
    if as_json:
        told = {**_report(wanted, marked), "still_paused": common.as_json(left)}
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(f"{_be(marked)} {'resumed' if marked.was_paused else 'not paused'}")
    if left:
        click.echo(f"! still paused otherwise: {_pauses(left, found)}", err=True)


async def _pause(
    wanted: Wanted, reason: str, wait_seconds: float
) -> tuple[PauseResult, list[ShardRow]]:
    from kinesumer.admin.connect import connect
    from kinesumer.admin.context import operator_context
    from kinesumer.admin.wait import still_held_in, wait_until_free

    async with connect(wanted.table, wanted.region) as (_, store):
        context = operator_context(wanted.app, store)
        marked = await pauses.pause(context, wanted.stream, wanted.shard, reason)
        held = still_held_in(marked.target)
        return marked, await wait_until_free(context, held, wait_seconds)


async def _resume(wanted: Wanted) -> tuple[PauseResult, Snapshot]:
    from kinesumer.admin import snapshot
    from kinesumer.admin.connect import connect
    from kinesumer.admin.context import operator_context

    async with connect(wanted.table, wanted.region) as (_, store):
        context = operator_context(wanted.app, store)
        marked = await pauses.resume(context, wanted.stream, wanted.shard)
        return marked, await snapshot.take(store, wanted.app)


def _still_paused(marked: PauseResult, found: Snapshot) -> list[ShardRow]:
    rows = [row for page in found.shards.values() for row in page]
    return [
        row
        for row in rows
        if marked.target.covers(row) and not row.ended and found.pause(row)
    ]


def _pauses(left: list[ShardRow], found: Snapshot) -> str:
    """Say which pauses these shards are still under."""
    texts = dict.fromkeys(
        {
            "all": "all streams",
            "stream": f"stream {stream_name(row.key.stream_arn)}",
            "shard": row.key.shard_id,
        }[pause.of]
        + (f" ({pause.reason})" if pause.reason else "")
        for row in left
        if (pause := found.pause(row)) is not None
    )
    return escape_unprintable(", ".join(texts))


def _be(marked: PauseResult) -> str:
    return f"{marked.target} {'is' if marked.target.stream_arn else 'are'}"


def _report(wanted: Wanted, marked: PauseResult) -> dict[str, Any]:
    return {
        "version": common.VERSION,
        "app": wanted.app,
        "table": wanted.table,
        "stream_arn": marked.target.stream_arn or None,
        "shard_id": marked.target.shard_id or None,
        "paused": marked.paused,
        "reason": marked.reason if marked.paused else None,
        "was_paused": marked.was_paused,
        "was_reason": marked.was_reason if marked.was_paused else None,
    }
