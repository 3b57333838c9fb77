"""Rows without shards, shards without rows, shards without owners."""

from __future__ import annotations

from kinesumer.admin.doctor.finding import Severity
from kinesumer.admin.doctor.ownership import orphan_shards
from kinesumer.model.streams import HASH_KEYS, Shard
from tests.unit.admin.doctor.looks import ARN, HALF, found, listed, member, row, seen

CHILDREN = [
    Shard("shardId-1", HALF, HASH_KEYS - 1),
    Shard("shardId-2", 0, 9, ("shardId-0",)),
    Shard("shardId-3", 10, HALF - 1, ("shardId-0",)),
]


def test_a_row_whose_shard_is_gone_tells_of_lost_records() -> None:
    one, *_ = orphan_shards(seen(streams={ARN: listed(listing=CHILDREN)}))
    assert one.severity is Severity.CRITICAL
    assert "no longer lists shardId-0" in one.text


def test_a_row_that_has_ended_may_be_gone() -> None:
    ended = found([row(0, ended=True), row(1)])
    texts = [one.text for one in orphan_shards(seen(ended, streams={ARN: listed()}))]
    assert texts == []


def test_shards_without_rows_are_told() -> None:
    listing = [Shard("shardId-0", 0, HALF - 1, (), True), *CHILDREN]
    read = found([row(0, ended=True), row(1)])
    [one] = orphan_shards(seen(read, streams={ARN: listed(listing=listing)}))
    assert one.severity is Severity.WARNING
    assert one.text == "shardId-2, shardId-3 have no row yet"


def test_children_of_what_is_still_read_need_no_row_yet() -> None:
    listing = [Shard("shardId-0", 0, HALF - 1, (), True), *CHILDREN]
    read = found([row(0, ended=True), row(1)])
    for first, second in ((found(), found()), (found(), read)):
        split = seen(first, second, streams={ARN: listed(listing=listing)})
        assert not list(orphan_shards(split))


def test_shards_without_rows_wait_for_whoever_starts_if_nobody_lives() -> None:
    listing = [Shard("shardId-0", 0, HALF - 1, (), True), *CHILDREN]
    dead = found([row(0, ended=True), row(1)], [member("a", dead=True)])
    [one] = orphan_shards(seen(dead, streams={ARN: listed(listing=listing)}))
    assert one.severity is Severity.NOTE


def test_a_listing_that_was_cut_off_proves_nothing() -> None:
    cut = listed(listing=[Shard("shardId-0", 0, HALF - 1)])
    assert not list(orphan_shards(seen(streams={ARN: cut})))


def test_a_shard_without_an_owner_is_told_if_it_lasts() -> None:
    unowned = found([row(0, owner=""), row(1)])
    [one] = orphan_shards(seen(unowned))
    assert one.severity is Severity.WARNING
    assert "shardId-0 have had no living owner for 10 s; planned for a" in one.text
    assert not list(orphan_shards(seen(unowned, found())))
    [one] = orphan_shards(seen(unowned, seconds=30.0))
    assert one.severity is Severity.CRITICAL


def test_a_shard_of_the_dead_is_told() -> None:
    [one] = orphan_shards(seen(found([row(0, owner="gone"), row(1)])))
    assert "no living owner" in one.text


def test_clients_that_are_all_drained_are_told() -> None:
    idle = found([row(0, owner=""), row(1)], [member("a", drained=True)])
    [one] = orphan_shards(seen(idle))
    assert "all clients that consume the stream are drained" in one.text
    assert "--undo" in one.advice


def test_a_paused_shard_needs_no_owner() -> None:
    paused = found([row(0, owner="", paused=True), row(1)])
    assert not list(orphan_shards(seen(paused)))


def test_a_stream_that_nobody_asks_for_is_told() -> None:
    unwanted = found(
        [row(0, owner=""), row(1, owner="")], [member("a", streams=frozenset())]
    )
    [one] = orphan_shards(seen(unwanted))
    assert "no live client consumes this stream" in one.text
