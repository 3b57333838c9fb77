"""Count the calls of DescribeStream that a table's stream needs.

AWS permits ten a second in an account. The leader lists the shards, with the decisions
of ``core.table_listing``, in a day in which all shards close four hours after they
opened: at different times, as those of a table that has grown, or all at once, as those
of a stream that was enabled four hours ago. Then the clients' sources, those of
``aws.table_polling``, look in virtual time for the children of shards that close at the
same moment.

    python -m benchmarks.table_listing [--partitions 1000 --clients 10]
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import count
from typing import Any, NamedTuple

import click

from kinesumer.aws.table_polling import Described, Place, TablePollingSource
from kinesumer.config import Config
from kinesumer.core.pacing import IDLE_SECONDS, Pacing
from kinesumer.core.table_listing import TableListing
from kinesumer.errors import SourceThrottledError
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.streams import Shard, Start
from kinesumer.ports import Reservation
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.wire.table_streams import StreamPage

CALLS_PER_SECOND = 10
ANSWER_SECONDS = 0.02
PAGE_SHARDS = 100
OPEN_SECONDS = 4 * 3600
LISTED_SECONDS = 24 * 3600  # after a shard has closed


class Table:
    """The shards that DynamoDB lists, in the order of their ids."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.entries: dict[str, Shard] = {}
        self.calls = 0  # those that were answered
        self.refused = 0
        self._numbers = count()
        self._children: dict[str, list[str]] = {}
        self._calls_left, self._at = float(CALLS_PER_SECOND), 0.0

    def open(self, *parents: str) -> str:
        """Add a shard, and return its id."""
        shard_id = f"shardId-{next(self._numbers):020d}"
        self.ids.append(shard_id)
        self.entries[shard_id] = Shard(shard_id, 0, 0, parents)
        for parent in parents:
            self._children.setdefault(parent, []).append(shard_id)
        return shard_id

    def permits(self, now: float) -> bool:
        """Return whether AWS permits one more call at a time."""
        refilled = self._calls_left + (now - self._at) * CALLS_PER_SECOND
        self._calls_left, self._at = min(CALLS_PER_SECOND, refilled), now
        if self._calls_left < 1:
            self.refused += 1
            return False
        self._calls_left -= 1
        return True

    def children(self, shard_id: str) -> list[Shard]:
        """Answer one call for the children of a shard."""
        self.calls += 1
        return [self.entries[each] for each in self._children.get(shard_id, ())]

    def expire(self, shard_id: str) -> None:
        """Remove a shard."""
        self.ids.remove(shard_id)
        del self.entries[shard_id]

    def page(self, after: str | None) -> tuple[list[Shard], str | None]:
        """Answer one call."""
        self.calls += 1
        first = 0 if after is None else bisect_right(self.ids, after)
        found = self.ids[first : first + PAGE_SHARDS]
        is_last = first + PAGE_SHARDS >= len(self.ids)
        return [self.entries[each] for each in found], None if is_last else found[-1]

    def list(self, listing: TableListing, now: float) -> int:
        """List all shards, and return the number of calls."""
        before = self.calls
        after = listing.begin(*self.page(None), "ENABLED", now)
        while after is not None:
            after = listing.add(*self.page(after), now)
        return self.calls - before


class Day(NamedTuple):
    """The calls of a day."""

    first_listing: int
    usual_listing: int
    most_in_a_listing: int
    leader_per_second: float


def simulate(partitions: int, *, at_once: bool) -> Day:
    """Simulate a day, after one in which the lineage has grown."""
    interval = Config().listing_interval_seconds
    table, listing = Table(), TableListing()
    step = 0 if at_once else OPEN_SECONDS / partitions
    shards = [(number * step, table.open()) for number in range(partitions)]
    closed: list[tuple[float, str]] = []
    costs, first = list[int](), 0
    now = 0.0
    while now < 2 * 24 * 3600:
        now += interval
        due = [each for each in shards if each[0] + OPEN_SECONDS <= now]
        shards = shards[len(due) :] if due else shards
        for opened, shard_id in due:
            shards.append((opened + OPEN_SECONDS, table.open(shard_id)))
            closed.append((now, shard_id))
        while closed and closed[0][0] + LISTED_SECONDS < now:
            table.expire(closed.pop(0)[1])
        if now <= 24 * 3600:
            continue
        costs.append(table.list(listing, now))
        first = first or costs[0]
    usual = sorted(costs)[len(costs) // 2]
    return Day(first, usual, max(costs[1:]), sum(costs) / 86_400)


class Owner(TablePollingSource):
    """The source of one client, which shares the account's calls with the others."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table

    @property
    def label(self) -> str:
        """The stream's name, for messages."""
        return "stream"

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Return a connection at once."""
        return nullcontext()

    async def _describe(self, **arguments: Any) -> Described:
        await asyncio.sleep(ANSWER_SECONDS)
        now = asyncio.get_running_loop().time()
        if not self._table.permits(now):
            raise SourceThrottledError("more than ten calls a second")
        if wanted := arguments.get("ShardFilter"):
            found, last = self._table.children(wanted["ShardId"]), None
        else:
            found, last = self._table.page(arguments.get("ExclusiveStartShardId"))
        page = StreamPage("arn", "table", "ENABLED", 0.0, "", found, last)
        return Described(page, now)

    async def _place(self, shard_id: str, after: Position | Start) -> str:
        return shard_id

    async def _read(
        self, iterator: str, limit: int, reservation: Reservation | None
    ) -> Page:
        await asyncio.sleep(ANSWER_SECONDS)
        return Page([], None, 0)

    async def _latest_arn(self) -> str | None:
        return None


class Close(NamedTuple):
    """What it takes to find the children of shards that close at the same moment."""

    answered: int
    refused: int
    seconds: float  # until the last child is known


def close_all(partitions: int, clients: int) -> Close:
    """Simulate the clients when all shards close, a day after the stream was enabled.

    The clients wait for the children of their shards, and the leader lists all shards.
    """
    chance = random.Random(1)
    table = Table()
    shards = [table.open() for _ in range(partitions)]
    for _ in range(LISTED_SECONDS // OPEN_SECONDS):
        shards = [table.open(shard) for shard in shards]

    async def wait_for_children(owner: Owner, shard_id: str) -> None:
        # Readers find the end at their next read.
        await asyncio.sleep(chance.random() * IDLE_SECONDS)
        pacing = Pacing(0.0)
        place = Place(shard_id, shard_id).encode()
        while True:
            try:
                page = await owner.get_records(place, 1000)
            except SourceThrottledError:
                page = None
            if page is not None and page.next_iterator is None:
                return
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(pacing.after_failure(now, chance.random()) - now)

    async def run() -> float:
        owners = [Owner(table) for _ in range(clients)]
        leader = owners[0]
        await leader.list_shards()
        for shard in shards:
            table.open(shard)
        await asyncio.sleep(1)
        table.calls = table.refused = 0
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as tasks:
            for number, shard in enumerate(chance.sample(shards, partitions)):
                tasks.create_task(wait_for_children(owners[number % clients], shard))
        return asyncio.get_running_loop().time() - began

    seconds = VirtualLoop(chance).run(run())
    return Close(table.calls, table.refused, seconds)


@click.command()
@click.option("--partitions", type=int, multiple=True, default=(100, 1000, 10_000))
@click.option("--clients", type=int, default=10, show_default=True)
def main(partitions: tuple[int, ...], clients: int) -> None:
    """Print the calls for each number of partitions."""
    for number in partitions:
        for at_once in (False, True):
            day = simulate(number, at_once=at_once)
            when = "all at once" if at_once else "one by one"
            click.echo(
                f"{number:6,} partitions, {when}: first listing {day.first_listing}, "
                f"usual {day.usual_listing}, most {day.most_in_a_listing} calls; "
                f"leader {day.leader_per_second:.2f}/s"
            )
        close = close_all(number, clients)
        click.echo(
            f"{number:6,} partitions close at once, {clients} clients: all children "
            f"are known after {close.seconds:.1f} s, {close.answered:,} calls, "
            f"{close.refused:,} refused"
        )


if __name__ == "__main__":
    main()
