"""Show what an import of positions changes, ask for confirmation, and apply it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kinesumer.errors import KinesumerError
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesumer.admin.connect import Roles
    from kinesumer.aws.session import ClientFactory
    from kinesumer.cli.options import CommonOptions
    from kinesumer.migration.takeover import ImportPlan, Open
    from kinesumer.runtime.context import ClientContext

    Draft = Callable[[ClientContext, ClientFactory], Awaitable[ImportPlan]]


def stream_opener(clients: ClientFactory, roles: Roles) -> Open:
    """Return a function that opens a stream by its name or ARN."""
    from kinesumer.aws.kinesis import open_source

    return lambda name: open_source(clients, roles.stream(name))


async def import_positions(common: CommonOptions, draft: Draft) -> None:
    """Draft an import, show it, ask, and apply it. Raises KinesumerError."""
    from kinesumer.admin.context import require_no_clients

    async with common.operate() as (context, clients):
        if not common.dry_run:
            # Live clients keep positions in memory, and would not read these.
            await require_no_clients(context)
        takeover = await draft(context, clients)
        if not common.as_json:
            _show(takeover)
        if takeover.problems:
            if common.as_json:
                common.print_report(takeover.report(written=False), indent=None)
            raise KinesumerError(f"nothing was written: {'; '.join(takeover.problems)}")
        is_written = not (common.dry_run or takeover.is_done)
        if is_written:
            common.confirm(f"Write these positions of app {common.app}?")
            await takeover.write(context)
        _show_result(common, takeover, written=is_written)


def _show_result(common: CommonOptions, takeover: ImportPlan, *, written: bool) -> None:
    if common.as_json:
        common.print_report(takeover.report(written=written), indent=None)
    elif written:
        click.echo("written and verified")
    elif takeover.is_done:
        click.echo("nothing to do: the app has these positions")
    else:
        click.echo("dry run: nothing was written")


def _show(takeover: ImportPlan) -> None:
    click.echo(f"from {escape_unprintable(takeover.source)}")
    streams = takeover.report(written=False)["streams"]
    show_streams(streams, "shards", _change_text)


def show_streams(
    streams: list[dict[str, Any]],
    rows: str,
    change_text: Callable[[dict[str, Any]], str],
) -> None:
    """Print for each stream of a report its changed rows, notes and problems."""
    for stream in streams:
        counts = ", ".join(f"{n} to {what}" for what, n in stream["counts"].items())
        click.echo(f"\n{escape_unprintable(stream['stream_arn'])}: {counts}")
        for row in stream[rows]:
            if row["action"] != "keep":
                click.echo(f"  {change_text(row)}")
        for note in stream["notes"]:
            click.echo(f"  note: {escape_unprintable(note)}")
        for problem in stream.get("problems", ()):
            click.echo(f"  ! {escape_unprintable(problem)}")
    click.echo("")


def _change_text(shard: dict[str, Any]) -> str:
    before = f"{_position_text(shard['before'])} → " if shard["before"] else ""
    after = _position_text(shard["after"])
    return f"{escape_unprintable(shard['shard_id'])}  {before}{after}"


def _position_text(position: dict[str, Any]) -> str:
    if position["ended"]:
        return "ended"
    number, sub = position["sequence_number"], position["sub_sequence_number"]
    if number is None:
        text = position["start"]
    else:
        text = number if sub is None else f"{number}/{sub}"
    return f"{text}, after its parents" if position["waits_for_parents"] else text
