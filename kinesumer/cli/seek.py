"""``kinesumer seek``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kinesumer.admin.arguments import (
    describe_seek,
    parse_position,
    position_text,
    shards_text,
)
from kinesumer.cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.admin.connect import Roles
    from kinesumer.admin.seek import SeekPlan, SeekTarget
    from kinesumer.cli.options import CommonOptions
    from kinesumer.core.seek import Step
    from kinesumer.model.rows import ShardRow
    from kinesumer.runtime.context import ClientContext


class Outcome(NamedTuple):
    """The result of a seek."""

    plans: list[SeekPlan]
    seeked: list[ShardRow]
    held: list[ShardRow]
    """Shards that clients still consume from the old position."""
    overtaken: list[ShardRow]
    """Shards that another seek has moved since."""


@click.command()
@options.app
@options.target
@click.option(
    "--to",
    required=True,
    metavar="PLACE",
    help="LATEST, TRIM_HORIZON, a time (2026-01-31T12:00:00Z, or 2h for two hours "
    "ago), or after a position in the --shard: SEQUENCENUMBER[:SUBSEQUENCENUMBER].",
)
@options.dry_run
@options.yes
@options.wait
@options.table
@options.region
@options.roles
@options.as_json
@options.pass_common
def seek(common: CommonOptions, to: str) -> None:
    """Move an app's positions back or forth, whether clients run or not.

    Clients deliver the records after PLACE, again if they delivered them before. They
    skip the records between a position and a later PLACE. Shards that have ended are
    read again, before their children, except for LATEST. The exit status is 1 if
    clients still read from the old positions after --wait (they will follow), or if
    another seek moved some of the shards at the same time.
    """
    from kinesumer.admin.seek import SeekTarget

    common.require_target()
    place = SeekTarget(parse_position(to, common.shard), common.stream, common.shard)
    outcome = asyncio.run(_seek(common, place, common.roles()))
    if common.as_json:
        common.print_report(_fields(common, outcome))
    elif common.dry_run:
        click.echo("dry run: nothing was changed")
    else:
        _show(common, outcome)
    if outcome.overtaken:
        click.echo(
            f"! another seek has moved {shards_text(len(outcome.overtaken))} since: "
            f"{options.named(outcome.overtaken)}; seek again if that wasn't intended",
            err=True,
        )
    common.fail_if_still_held(outcome.held, "from the old positions")
    if outcome.overtaken:
        click.get_current_context().exit(1)


async def _seek(common: CommonOptions, place: SeekTarget, roles: Roles) -> Outcome:
    from kinesumer.admin.seek import plan_seeks
    from kinesumer.admin.seek_counts import count_seek

    async with common.operate() as (context, clients):
        plans = await plan_seeks(context, clients, place, roles)
        # Counting reads the streams: it is for someone who decides.
        is_counted = common.dry_run or not common.yes
        for plan in plans:
            counts = await count_seek(plan) if is_counted else None
            head, *lines = describe_seek(plan, counts)
            click.echo("\n  ".join([head, *lines]), err=common.as_json)
        if common.dry_run:
            return Outcome(plans, [], [], [])
        common.confirm("Seek?")
        return await _apply(context, plans, common.wait_seconds)


async def _apply(
    context: ClientContext, plans: Sequence[SeekPlan], wait_seconds: float
) -> Outcome:
    from kinesumer.admin import seek
    from kinesumer.admin.context import report_partial_failure
    from kinesumer.admin.wait import still_held_since, wait_until_free

    with report_partial_failure(
        "some shards may have been moved; run the command again"
    ):
        seeked = [row for plan in plans for row in await seek.seek(context, plan)]
    held = await wait_until_free(context, still_held_since(seeked), wait_seconds)
    overtaken = await seek.conflicting_seeks(context, plans, seeked)
    return Outcome(list(plans), seeked, held, overtaken)


def _show(common: CommonOptions, outcome: Outcome) -> None:
    click.echo(f"moved {shards_text(len(outcome.seeked))}")
    ended = sum(len(plan.steps) for plan in outcome.plans) - len(outcome.seeked)
    if ended > 0:
        click.echo(f"left {shards_text(ended)}, which had ended in the meantime")
    if common.wait_seconds and not outcome.held:
        click.echo("no client reads from the old positions")


def _fields(common: CommonOptions, outcome: Outcome) -> dict[str, Any]:
    return {
        "dry_run": common.dry_run,
        "streams": [
            {
                "stream_arn": plan.stream_arn,
                "to": position_text(plan.to),
                "shards": [_shard_fields(step) for step in plan.steps],
            }
            for plan in outcome.plans
        ],
        "sought": len(outcome.seeked),
        "still_consumed": options.shards_json(outcome.held),
        "overtaken": options.shards_json(outcome.overtaken),
    }


def _shard_fields(step: Step) -> dict[str, Any]:
    row = step.row
    return {
        "shard_id": row.key.shard_id,
        "from": None if step.is_new else position_text(row.position or row.start),
        "ended": row.ended,
        "waits": step.waits,
        "owner": row.owner_id or None,
        "epoch": row.epoch,
    }
