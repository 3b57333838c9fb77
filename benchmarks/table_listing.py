"""Count the calls of DescribeStream that a table's stream needs in a day.

AWS permits ten a second in an account. The leader lists the shards, with the decisions
of ``core.table_listing``, and the owner of each shard that has ended asks for its
children, as ``aws.table_polling`` does. All shards close four hours after they opened:
at different times, as those of a table that has grown, or all at once, as those of a
stream that was enabled four hours ago.

    python -m benchmarks.table_listing [--partitions 1000 --clients 10]
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import count
from typing import NamedTuple

import click

from kinesumer.config import Config
from kinesumer.core.table_listing import TableListing
from kinesumer.model.streams import Shard

CALLS_PER_SECOND = 10
PAGE_SHARDS = 100
OPEN_SECONDS = 4 * 3600
LISTED_SECONDS = 24 * 3600  # after a shard has closed


class Table:
    """The shards that DynamoDB lists, in the order of their ids."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.entries: dict[str, Shard] = {}
        self.calls = 0
        self._numbers = count()

    def open(self, *parents: str) -> str:
        """Add a shard, and return its id."""
        shard_id = f"shardId-{next(self._numbers):020d}"
        self.ids.append(shard_id)
        self.entries[shard_id] = Shard(shard_id, 0, 0, parents)
        return shard_id

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
    owners_per_second: float
    seconds_to_children: float  # until the last child is known, after the most ends


def simulate(partitions: int, clients: int, *, at_once: bool) -> Day:
    """Simulate a day, after one in which the lineage has grown."""
    interval = Config().listing_interval_seconds
    table, listing = Table(), TableListing()
    step = 0 if at_once else OPEN_SECONDS / partitions
    shards = [(number * step, table.open()) for number in range(partitions)]
    closed: list[tuple[float, str]] = []
    costs, owners, most_ends, first = list[int](), 0, 0, 0
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
        most_ends = max(most_ends, len(due))
        owners += owner_calls(len(due), clients)
        costs.append(table.list(listing, now))
        first = first or costs[0]
    usual = sorted(costs)[len(costs) // 2]
    calls = owner_calls(most_ends, clients) + most_ends // PAGE_SHARDS + 2
    return Day(
        first,
        usual,
        max(costs[1:]),
        sum(costs) / 86_400,
        owners / 86_400,
        calls / CALLS_PER_SECOND,
    )


def owner_calls(ends: int, clients: int) -> int:
    """Return the calls of the owners of shards that end within one listing interval.

    An owner of several lists what is new, which is less than a call for each shard if
    the shards close at once.
    """
    each = ends / clients
    listing = 2 + ends // PAGE_SHARDS
    return round(clients * min(each, 1 + listing))


@click.command()
@click.option("--partitions", type=int, multiple=True, default=(100, 1000, 10_000))
@click.option("--clients", type=int, default=10, show_default=True)
def main(partitions: tuple[int, ...], clients: int) -> None:
    """Print the calls for each number of partitions."""
    for number in partitions:
        for at_once in (False, True):
            day = simulate(number, clients, at_once=at_once)
            when = "all at once" if at_once else "one by one"
            click.echo(
                f"{number:6,} partitions, {when}: first listing {day.first_listing}, "
                f"usual {day.usual_listing}, most {day.most_in_a_listing} calls; "
                f"leader {day.leader_per_second:.2f}/s, "
                f"owners {day.owners_per_second:.2f}/s; "
                f"all children known after {day.seconds_to_children:.1f} s"
            )


if __name__ == "__main__":
    main()
