"""Shows what a takeover of positions will do, asks, and does it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kinesumer.cli.confirm import agreed
from kinesumer.errors import KinesumerError
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesumer.admin.connect import Roles
    from kinesumer.aws.session import ClientFactory
    from kinesumer.migration.takeover import ImportPlan, Open
    from kinesumer.runtime.context import ClientContext

    Drafting = Callable[[ClientContext, ClientFactory], Awaitable[ImportPlan]]


class Wanted(NamedTuple):
    """Which app's positions, and how to go about it."""

    app: str
    table: str
    region: str | None
    dry_run: bool
    yes: bool
    as_json: bool


def opening(clients: ClientFactory, roles: Roles) -> Open:
    """Return what opens a stream by its name or ARN."""
    from kinesumer.aws.kinesis import open_source

    return lambda name: open_source(clients, roles.stream(name))


async def take_over(wanted: Wanted, drafting: Drafting) -> None:
    """Draft a takeover, show it, ask, and do it. Raises KinesumerError."""
    from kinesumer.admin.connect import connect
    from kinesumer.admin.context import operator_context, require_no_clients

    async with connect(wanted.table, wanted.region) as (clients, store):
        context = operator_context(wanted.app, store)
        if not wanted.dry_run:
            await require_no_clients(context)
        takeover = await drafting(context, clients)
        if not wanted.as_json:
            _show(takeover)
        if takeover.problems:
            if wanted.as_json:
                print_json(wanted, takeover.report(written=False))
            raise KinesumerError(f"nothing was written: {'; '.join(takeover.problems)}")
        if wanted.dry_run or takeover.is_done:
            _tell(wanted, takeover, written=False)
            return
        agreed(f"Write these positions of app {wanted.app}?", yes=wanted.yes)
        await takeover.write(context)
        _tell(wanted, takeover, written=True)


def print_json(wanted: Wanted, report: dict[str, Any]) -> None:
    """Print a report and whose it is."""
    about = {"app": wanted.app, "table": wanted.table}
    click.echo(json.dumps({"version": report.pop("version"), **about, **report}))


def _tell(wanted: Wanted, takeover: ImportPlan, *, written: bool) -> None:
    if wanted.as_json:
        print_json(wanted, takeover.report(written=written))
    elif written:
        click.echo("written and verified")
    elif takeover.is_done:
        click.echo("nothing to do: the app has these positions")
    else:
        click.echo("a dry run: nothing was written")


def _show(takeover: ImportPlan) -> None:
    click.echo(f"from {escape_unprintable(takeover.source)}")
    streams = takeover.report(written=False)["streams"]
    show_streams(streams, "shards", _change)


def show_streams(
    streams: list[dict[str, Any]],
    rows: str,
    change: Callable[[dict[str, Any]], str],
) -> None:
    """Show for each stream of a report which of its rows change, and what to know."""
    for stream in streams:
        counts = ", ".join(f"{n} to {what}" for what, n in stream["counts"].items())
        click.echo(f"\n{escape_unprintable(stream['stream_arn'])}: {counts}")
        for row in stream[rows]:
            if row["action"] != "keep":
                click.echo(f"  {change(row)}")
        for note in stream["notes"]:
            click.echo(f"  note: {escape_unprintable(note)}")
        for problem in stream.get("problems", ()):
            click.echo(f"  ! {escape_unprintable(problem)}")
    click.echo("")


def _change(shard: dict[str, Any]) -> str:
    before = f"{place(shard['before'])} → " if shard["before"] else ""
    return f"{escape_unprintable(shard['shard_id'])}  {before}{place(shard['after'])}"


def place(at: dict[str, Any]) -> str:
    """Return a place in a shard as text."""
    if at["ended"]:
        return "ended"
    number, sub = at["sequence_number"], at["sub_sequence_number"]
    if number is None:
        text = at["start"]
    else:
        text = number if sub is None else f"{number}/{sub}"
    return f"{text}, after its parents" if at["waits_for_parents"] else text
