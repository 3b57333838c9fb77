"""Decide which pages of a table stream's shards must be listed again.

AWS permits ten calls of DescribeStream a second in an account, with 100 shards each. A
shard lasts four hours at most, and is listed for a day longer. So a table with 1,000
partitions has 7,000 shards, or 70 pages. But the shards are in the order of their
creation, so that a listing needs only two parts: the first page, which shows what has
expired, and what follows the newest shard known.

A shard of which a child is listed has closed, though its own entry may be older.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from kinesumer.model.streams import Shard

# After so many seconds for each page, all pages are listed: then an entry that the
# service listed late, or out of order, is found, too. So this costs two calls a minute.
FULL_LISTING_PAGE_SECONDS = 30.0
# The longest time between two listings of all pages.
FULL_LISTING_SECONDS = 3600.0
# Stands for the last number of a shard that has closed since it was listed.
_UNKNOWN_END = "9" * 40  # no sequence number has more digits


class TableListing:
    """The shards of one stream, as the listings have shown them.

    ``begin()`` takes the first page of a listing, and ``add()`` each further page. Both
    return the shard after which the next page begins, or None if the listing is
    complete. A listing that is given up halfway changes nothing that is wrong.
    """

    def __init__(self) -> None:
        self._known: dict[str, Shard] = {}
        self._children: dict[str, list[Shard]] = {}
        self._status = ""
        self._full_until = 0.0
        # The shards of a full listing that isn't complete yet. None in other listings.
        self._found: dict[str, Shard] | None = None
        self._pages = 0  # of this full listing

    @property
    def shards(self) -> list[Shard]:
        """All shards of the last listing, in the order of the service."""
        return [self._with_end(shard) for shard in self._known.values()]

    def children(self, shard_id: str) -> tuple[Shard, ...]:
        """Return the listed children of a shard."""
        return tuple(self._children.get(shard_id, ()))

    def before(self, shard_id: str) -> str | None:
        """Return the shard that is listed before another one; None for the first."""
        *_, last = [None, *takewhile(lambda known: known != shard_id, self._known)]
        return last

    def begin(
        self, shards: list[Shard], last: str | None, status: str, now: float
    ) -> str | None:
        """Take the first page, at a time in seconds of any clock."""
        is_same = status == self._status and now < self._full_until
        self._status = status
        if last is None or not is_same or last not in self._known:
            self._found, self._pages = {}, 0
            return self.add(shards, last, now)
        self._found = None
        oldest = shards[0].shard_id if shards else ""
        for expired in list(takewhile(lambda known: known != oldest, self._known)):
            self._known.pop(expired)
            self._children.pop(expired, None)
        self._take(shards)
        return next(reversed(self._known))

    def add(self, shards: list[Shard], last: str | None, now: float) -> str | None:
        """Take a further page."""
        if self._found is None:
            self._take(shards)
            return last
        self._found.update((shard.shard_id, shard) for shard in shards)
        self._pages += 1
        if last is None:
            self._known, self._children = {}, {}
            self._take(self._found.values())
            self._found = None
            seconds = FULL_LISTING_PAGE_SECONDS * self._pages
            self._full_until = now + min(seconds, FULL_LISTING_SECONDS)
        return last

    def _take(self, shards: Iterable[Shard]) -> None:
        for shard in shards:
            is_new = shard.shard_id not in self._known
            self._known[shard.shard_id] = shard
            for parent in shard.parents if is_new else ():
                self._children.setdefault(parent, []).append(shard)

    def _with_end(self, shard: Shard) -> Shard:
        if shard.closed or shard.shard_id not in self._children:
            return shard
        return shard._replace(ending_sequence_number=_UNKNOWN_END)
