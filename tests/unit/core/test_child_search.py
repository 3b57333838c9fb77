"""Test which calls find the children of closed shards."""

from __future__ import annotations

import pytest

from kinesumer.core.backoff import CALL_BACKOFF
from kinesumer.core.child_search import (
    FEW_SHARDS,
    FORGET_SECONDS,
    PAGE_SECONDS,
    ChildSearch,
    OfShard,
    PageAfter,
)
from kinesumer.model.streams import Shard

LATER = [f"shardId-2{number:02}" for number in range(2 * FEW_SHARDS)]
MANY = [f"shardId-{number:03}" for number in range(2 * FEW_SHARDS)]


def child(parent: str) -> Shard:
    return Shard(f"shardId-1{parent[-3:]}", 0, 0, (parent,))


class Searching:
    """A search, and the time."""

    def __init__(self) -> None:
        self.search = ChildSearch()
        self.now = 100.0

    def poll(self, *shards: str) -> list[OfShard | PageAfter]:
        """Let the readers of shards ask. Return the calls that they should make."""
        calls = (self.search.next_call(shard, self.now) for shard in shards)
        return [call for call in calls if call is not None]

    def begin(self) -> PageAfter:
        """Begin to search for the children of many shards. Return the first call."""
        [first] = self.poll(*MANY)
        assert first == OfShard(MANY[0])
        self.search.failed(self.now)
        self.now += CALL_BACKOFF.limit_seconds(1)
        [call] = self.poll(*MANY)
        assert isinstance(call, PageAfter)
        return call


def test_a_few_shards_are_asked_for_one_at_a_time_and_five_in_a_second() -> None:
    on = Searching()
    few = MANY[:FEW_SHARDS]
    for shard in few:
        assert on.poll(shard, *few) == [OfShard(shard)]
        on.search.answered(shard, on.now)
        assert on.poll(*few) == []
        on.now += PAGE_SECONDS


def test_what_follows_the_youngest_of_many_shards_is_listed_page_by_page() -> None:
    on = Searching()
    assert on.begin() == PageAfter(MANY[-1])
    on.search.listed([child(MANY[0])], "shardId-1000", on.now)
    assert on.search.children(MANY[0]) == (child(MANY[0]),)
    assert on.search.children(MANY[1]) == ()
    assert on.poll(*MANY[1:]) == []
    on.now += PAGE_SECONDS
    assert on.poll(*MANY[1:]) == [PageAfter("shardId-1000")]
    twins = [child(MANY[1]), child(MANY[1])._replace(shard_id="shardId-1999")]
    on.search.listed(twins, None, on.now)
    assert on.search.children(MANY[1]) == tuple(twins)


def test_a_shard_that_a_search_has_missed_is_asked_for() -> None:
    on = Searching()
    on.begin()
    on.search.listed([child(shard) for shard in MANY[1:]], None, on.now)
    on.now += PAGE_SECONDS
    for shard in LATER:
        on.poll(shard)
        on.search.failed(on.now)
    on.now += CALL_BACKOFF.longest_seconds
    assert on.poll(MANY[0]) == [OfShard(MANY[0])]
    on.search.answered(MANY[0], on.now)
    on.now += PAGE_SECONDS
    assert on.poll(*LATER) == [PageAfter(LATER[-1])]


def test_no_more_is_listed_than_the_shards_would_need_by_themselves() -> None:
    on = Searching()
    on.begin()
    for _ in LATER[1:]:
        on.search.listed([], "shardId-1000", on.now)
    on.search.listed([], None, on.now)  # as many pages as shards
    on.now += FORGET_SECONDS
    assert on.poll(*LATER) == [OfShard(LATER[0])]
    on.search.failed(on.now)
    on.now += CALL_BACKOFF.longest_seconds
    assert on.poll(LATER[1]) == [OfShard(LATER[1])]
    on.search.failed(on.now)
    on.now += CALL_BACKOFF.longest_seconds
    assert on.poll("shardId-300") == [PageAfter("shardId-300")]


def test_a_search_for_many_is_given_up_when_few_are_left() -> None:
    on = Searching()
    on.begin()
    found = [child(shard) for shard in MANY[FEW_SHARDS:]]
    on.search.listed(found, "shardId-1000", on.now)
    on.now += PAGE_SECONDS
    assert on.poll(*MANY[:FEW_SHARDS]) == [OfShard(MANY[0])]


def test_shards_that_belong_to_others_by_now_are_forgotten() -> None:
    on = Searching()
    on.begin()
    on.search.failed(on.now)
    on.now += FORGET_SECONDS
    assert on.poll("shardId-999") == [OfShard("shardId-999")]


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_a_refused_call_delays_the_search_but_does_not_end_it(failures: int) -> None:
    on = Searching()
    on.begin()
    on.search.listed([], "shardId-1000", on.now)
    for count in range(1, failures + 1):
        on.now += 4
        assert on.poll(*MANY) == [PageAfter("shardId-1000")]
        on.search.failed(on.now)
        on.now += CALL_BACKOFF.limit_seconds(count) - 0.01
        assert on.poll(*MANY) == []
