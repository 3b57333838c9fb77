"""Test which pages of a table stream's shards are listed, and what they show."""

from __future__ import annotations

import pytest

from kinesumer.core.table_listing import FULL_LISTING_SECONDS, TableListing
from kinesumer.model.streams import Shard

PAGE = 100


class Table:
    """A table's stream: its shards in the order of their ids, in pages of 100."""

    def __init__(self) -> None:
        self.shards: list[Shard] = []
        self.status = "ENABLED"
        self.calls = 0

    def open(self, *parents: str) -> str:
        """Add a shard after its parent has closed."""
        shard_id = f"shardId-{len(self.shards):08d}"
        self.shards.append(Shard(shard_id, len(self.shards), len(self.shards), parents))
        self.shards = [
            each._replace(ending_sequence_number="7")
            if each.shard_id in parents
            else each
            for each in self.shards
        ]
        return shard_id

    def page(self, after: str | None) -> tuple[list[Shard], str | None]:
        """Answer one call."""
        self.calls += 1
        rest = [s for s in self.shards if after is None or s.shard_id > after]
        found = rest[:PAGE]
        return found, found[-1].shard_id if len(rest) > PAGE else None

    def list(self, listing: TableListing, now: float = 0.0) -> int:
        """List all shards as a source does. Return the number of calls."""
        self.calls = 0
        shards, last = self.page(None)
        after = listing.begin(shards, last, self.status, now)
        while after is not None:
            after = listing.add(*self.page(after), now)
        return self.calls


def ids(listing: TableListing) -> list[str]:
    return [shard.shard_id for shard in listing.shards]


def table(count: int) -> Table:
    made = Table()
    for _ in range(count):
        made.open()
    return made


def test_a_small_stream_is_listed_by_one_call_that_shows_all_ends() -> None:
    stream, listing = table(50), TableListing()
    assert stream.list(listing) == 1
    stream.open("shardId-00000003")
    assert stream.list(listing) == 1
    assert listing.shards == stream.shards


def test_a_large_stream_is_listed_once_and_then_only_its_beginning_and_its_end() -> (
    None
):
    stream, listing = table(7000), TableListing()
    assert stream.list(listing) == 70
    assert stream.list(listing) == 2
    for number in range(6000, 6250):
        stream.open(f"shardId-{number:08d}")
    assert stream.list(listing) == 4
    assert ids(listing) == [shard.shard_id for shard in stream.shards]


def test_a_shard_with_a_listed_child_has_closed() -> None:
    stream, listing = table(500), TableListing()
    stream.list(listing)
    child = stream.open("shardId-00000300")
    stream.list(listing)
    closed = [shard.shard_id for shard in listing.shards if shard.closed]
    assert closed == ["shardId-00000300"]
    assert [s.shard_id for s in listing.children("shardId-00000300")] == [child]
    assert listing.children(child) == ()


def test_expired_shards_leave_the_listing() -> None:
    stream, listing = table(500), TableListing()
    stream.open("shardId-00000003")
    stream.list(listing)
    del stream.shards[:120]
    assert stream.list(listing) == 2
    assert ids(listing) == [shard.shard_id for shard in stream.shards]
    assert listing.children("shardId-00000003") == ()


def test_if_everything_known_has_expired_all_is_listed_again() -> None:
    stream, listing = table(300), TableListing()
    stream.list(listing)
    for _ in range(300):
        stream.open()
    del stream.shards[:300]
    assert stream.list(listing) == 3
    assert ids(listing) == [shard.shard_id for shard in stream.shards]


@pytest.mark.parametrize(
    ("shards", "pages", "seconds"), [(500, 5, 150.0), (12_100, 121, 3600.0)]
)
def test_all_is_listed_again_at_the_latest_after_an_hour(
    shards: int, pages: int, seconds: float
) -> None:
    stream, listing = table(0), TableListing()
    stream.shards = [Shard(f"shardId-{n:08d}", n, n) for n in range(shards)]
    assert stream.list(listing) == pages
    assert stream.list(listing, now=seconds - 1) == 2
    assert stream.list(listing, now=seconds) == pages


def test_all_is_listed_when_the_status_changes() -> None:
    stream, listing = table(500), TableListing()
    stream.list(listing)
    stream.status = "DISABLED"
    stream.shards = [s._replace(ending_sequence_number="7") for s in stream.shards]
    assert stream.list(listing, now=1) == 5
    assert all(shard.closed for shard in listing.shards)
    assert stream.list(listing, now=2) == 2


def test_a_listing_that_breaks_off_keeps_what_was_known() -> None:
    stream, listing = table(500), TableListing()
    stream.list(listing)
    before = listing.shards
    shards, last = stream.page(None)
    assert listing.begin(shards, last, "ENABLED", FULL_LISTING_SECONDS) == last
    assert listing.shards == before
    assert stream.list(listing, now=FULL_LISTING_SECONDS) == 5


def test_the_shard_before_another_one_is_where_a_page_with_it_begins() -> None:
    stream, listing = table(3), TableListing()
    stream.list(listing)
    assert listing.before("shardId-00000000") is None
    assert listing.before("shardId-00000002") == "shardId-00000001"
