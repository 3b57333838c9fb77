"""``kinesumer seek``."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kinesumer.admin.arguments import (
    describe_seek,
    parse_position,
    position_text,
    shards_text,
)
from kinesumer.cli import options
from kinesumer.cli import target_options as common
from kinesumer.cli.confirm import agreed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.admin.connect import Roles
    from kinesumer.admin.seek import SeekPlan, SeekTarget
    from kinesumer.core.seek import Step
    from kinesumer.model.rows import ShardRow
    from kinesumer.runtime.context import ClientContext


class Wanted(NamedTuple):
    """What to seek, and how."""

    app: str
    table: str
    region: str | None
    place: SeekTarget
    roles: Roles
    wait_seconds: float
    dry_run: bool
    yes: bool
    as_json: bool


class Outcome(NamedTuple):
    """What came of it."""

    plans: list[SeekPlan]
    sought: list[ShardRow]
    left: list[ShardRow]
    """Still consumed from where they were."""
    overtaken: list[ShardRow]
    """Moved elsewhere since by another seek."""


@click.command()
@options.app
@common.target
@click.option(
    "--to",
    required=True,
    metavar="PLACE",
    help="LATEST, TRIM_HORIZON, a time (2026-01-31T12:00:00Z, or 2h for two hours "
    "ago), or after a position of the --shard: SEQUENCENUMBER[:SUBSEQUENCENUMBER].",
)
@options.dry_run
@options.yes
@common.wait
@options.table
@options.region
@options.roles
@options.external_id
@options.as_json
def seek(
    app: str,
    stream: str | None,
    shard: str | None,
    everything: bool,
    to: str,
    dry_run: bool,
    yes: bool,
    wait_seconds: float,
    table: str,
    region: str | None,
    role: tuple[str, ...],
    external_id: str | None,
    as_json: bool,
) -> None:
    """Read on from elsewhere, back or forth, while clients run or not.

    What comes after the place is delivered, again where it was before; what lies
    between a position and a later place is skipped. Shards that have ended are read
    again, before their children, except for LATEST. The exit status is 1 if clients
    haven't begun anew after --wait (they will), or if another seek at the same time
    moved some of the shards elsewhere.
    """
    from kinesumer.admin.connect import parse_roles
    from kinesumer.admin.seek import SeekTarget

    common.check_target(stream, shard, everything)
    place = SeekTarget(parse_position(to, shard), stream, shard)
    roles = parse_roles(role, external_id)
    wanted = Wanted(
        app, table, region, place, roles, wait_seconds, dry_run, yes, as_json
    )
    outcome = asyncio.run(_seek(wanted))
    if as_json:
        click.echo(json.dumps(_report(wanted, outcome), indent=2))
    elif dry_run:
        click.echo("a dry run: nothing was changed")
    else:
        click.echo(f"sought {shards_text(len(outcome.sought))}")
        ended = sum(len(plan.steps) for plan in outcome.plans) - len(outcome.sought)
        if ended > 0:
            click.echo(f"{shards_text(ended)} had ended by then: left as they are")
        if wait_seconds and not outcome.left:
            click.echo("no client reads on from where it was")
    if outcome.overtaken:
        click.echo(
            f"! another seek has moved {shards_text(len(outcome.overtaken))} since: "
            f"{common.named(outcome.overtaken)}; seek again if that wasn't meant",
            err=True,
        )
    common.late(outcome.left, wait_seconds, "from where they were")
    if outcome.overtaken:
        click.get_current_context().exit(1)


async def _seek(wanted: Wanted) -> Outcome:
    from kinesumer.admin.connect import connect
    from kinesumer.admin.context import operator_context
    from kinesumer.admin.seek import plan_seeks
    from kinesumer.admin.seek_counts import count_seek

    async with connect(wanted.table, wanted.region) as (clients, store):
        context = operator_context(wanted.app, store)
        plans = await plan_seeks(context, clients, wanted.place, wanted.roles)
        is_asked = wanted.dry_run or not wanted.yes
        for plan in plans:
            counts = await count_seek(plan) if is_asked else None
            head, *lines = describe_seek(plan, counts)
            click.echo("\n  ".join([head, *lines]), err=wanted.as_json)
        if wanted.dry_run:
            return Outcome(plans, [], [], [])
        agreed("Seek?", yes=wanted.yes)
        return await _do(context, plans, wanted.wait_seconds)


async def _do(
    context: ClientContext, plans: Sequence[SeekPlan], wait_seconds: float
) -> Outcome:
    from kinesumer.admin import seek
    from kinesumer.admin.context import report_partial_failure
    from kinesumer.admin.wait import still_held_since, wait_until_free

    with report_partial_failure(
        "a part of the shards may have been sought: run it again"
    ):
        sought = [row for plan in plans for row in await seek.seek(context, plan)]
    left = await wait_until_free(context, still_held_since(sought), wait_seconds)
    overtaken = await seek.conflicting_seeks(context, plans, sought)
    return Outcome(list(plans), sought, left, overtaken)


# --- what is told --------------------------------------------------------------------


def _report(wanted: Wanted, outcome: Outcome) -> dict[str, Any]:
    return {
        "version": common.VERSION,
        "app": wanted.app,
        "table": wanted.table,
        "dry_run": wanted.dry_run,
        "streams": [
            {
                "stream_arn": plan.stream_arn,
                "to": position_text(plan.to),
                "shards": [_shard(step) for step in plan.steps],
            }
            for plan in outcome.plans
        ],
        "sought": len(outcome.sought),
        "still_consumed": common.as_json(outcome.left),
        "overtaken": common.as_json(outcome.overtaken),
    }


def _shard(step: Step) -> dict[str, Any]:
    row = step.row
    return {
        "shard_id": row.key.shard_id,
        "from": None if step.is_new else position_text(row.position or row.start),
        "ended": row.ended,
        "waits": step.waits,
        "owner": row.owner_id or None,
        "epoch": row.epoch,
    }
