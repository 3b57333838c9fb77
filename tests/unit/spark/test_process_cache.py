"""Test that iterators serve one later read each, and are forgotten once expired."""

from __future__ import annotations

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey
from kinesumer.spark.process_cache import ITERATOR_SECONDS, IteratorCache

SHARD, AFTER = ShardKey("orders", "shardId-000000000000"), Position("7")


@pytest.mark.parametrize(
    ("seconds", "iterator"), [(ITERATOR_SECONDS, "one"), (ITERATOR_SECONDS + 1, None)]
)
def test_an_iterator_is_returned_once_until_it_expires(
    seconds: float, iterator: str | None
) -> None:
    cache = IteratorCache()
    cache.keep(SHARD, AFTER, "one", 0.0)
    assert cache.take(SHARD, AFTER, seconds) == iterator
    assert cache.take(SHARD, AFTER, seconds) is None


def test_expired_iterators_make_room_for_new_ones() -> None:
    cache = IteratorCache()
    for place in range(1_000):
        cache.keep(SHARD, Position(str(place)), "one", 10.0 * place)
    kept = [cache.take(SHARD, Position(str(i)), 0.0) for i in range(1_000)]
    assert sum(iterator is not None for iterator in kept) == ITERATOR_SECONDS / 10 + 1
