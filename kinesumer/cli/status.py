"""``kinesumer status``."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import click

from kinesumer.cli import options
from kinesumer.errors import KinesumerError, TransientError, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.aws.session import Clients
    from kinesumer.cli.lag import Lags
    from kinesumer.cli.snapshot import Snapshot
    from kinesumer.ports import StateStore
    from kinesumer.wire.rows import MemberRow

WATCH_SECONDS = 2.0
BEAT_LOOK_SECONDS = 0.5


@click.command()
@options.app
@options.table
@options.region
@options.as_json
@click.option("--watch", is_flag=True, help="Show it again every two seconds.")
@click.option(
    "--lag/--no-lag",
    default=True,
    help="Ask Kinesis how far each shard is behind (needs to read the streams).",
)
def status(
    app: str, table: str, region: str | None, as_json: bool, watch: bool, lag: bool
) -> None:
    """Show who consumes what, and how far behind: it reads only.

    Takes about a heartbeat (two seconds), to see whose heart beats. --json is described
    in docs/status-json.md; with --watch it prints one object a line.
    """
    show = _shower(as_json, watch)
    asyncio.run(_status(_Question(app, table, lag), region, show, watch))


def _shower(as_json: bool, watch: bool) -> Callable[[dict[str, Any]], None]:
    if as_json:
        indent = None if watch else 2
        return lambda found: click.echo(json.dumps(found, indent=indent))
    from kinesumer.cli.tables import show, show_again

    return show_again if watch else show


async def _status(
    question: _Question,
    region: str | None,
    show: Callable[[dict[str, Any]], None],
    watch: bool,
) -> None:
    from kinesumer.aws.dynamodb import open_store
    from kinesumer.aws.session import Clients

    async with Clients(region=region) as clients:
        store = await open_store(clients, question.table)
        await store.verify()
        show(await question.answer(clients, store))
        while watch:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                show(await question.answer(clients, store))
            except TransientError as error:
                click.echo(f"{shown(str(error))}; trying again", err=True)


class _Question:
    """What is asked, and what was seen of the heartbeats so far."""

    def __init__(self, app: str, table: str, lag: bool) -> None:
        self.app, self.table = app, table
        self._lag = lag
        self._beats: dict[str, tuple[int, float]] = {}

    async def answer(self, clients: Clients, store: StateStore) -> dict[str, Any]:
        """Read the rows, watch the hearts, ask for lags; return it as JSON."""
        from kinesumer.cli import snapshot
        from kinesumer.cli.lag import Lags, read_lags
        from kinesumer.cli.report import report

        found = await snapshot.take(store, self.app)
        if not (found.members or found.streams or found.corrupt):
            raise KinesumerError(
                f"table {self.table} knows no app {self.app!r}: nobody has consumed "
                "under this name there; check --app, --table and --region"
            )
        lags = Lags({}, {})
        silent, lags = await asyncio.gather(
            self._watch_hearts(store, found),
            read_lags(clients, found.shards) if self._lag else _nothing(lags),
        )
        return report(self.app, self.table, found, lags, silent)

    async def _watch_hearts(
        self, store: StateStore, found: Snapshot
    ) -> dict[str, float]:
        """Return since when each heart was seen not to beat, by session.

        Looks until all have beaten, or for as long as a heart may need.
        """
        from kinesumer.cli import snapshot
        from kinesumer.cli.report import stalled_after

        first = {member.session: member.beat for member in found.alive}
        patience = max((stalled_after(m) for m in found.alive), default=0.0)
        silent = self._note(found.alive)
        deadline = time.monotonic() + patience + BEAT_LOOK_SECONDS
        waiting = set(first)
        while waiting and time.monotonic() < deadline:
            await asyncio.sleep(BEAT_LOOK_SECONDS)
            members = await snapshot.read_members(store, self.app)
            silent |= self._note(members)
            waiting -= {m.session for m in members if m.dead}
            waiting -= {m.session for m in members if m.beat != first.get(m.session)}
        return silent

    def _note(self, members: list[MemberRow]) -> dict[str, float]:
        now = time.monotonic()
        for member in members:
            seen = self._beats.get(member.session)
            if seen is None or seen[0] != member.beat:
                self._beats[member.session] = member.beat, now
        return {m.session: now - self._beats[m.session][1] for m in members}


async def _nothing(value: Lags) -> Lags:
    return value
