"""Rows, shards and owners that don't match, and hand-overs that don't end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesumer.admin.doctor.ownership import stuck_hand_overs
from kinesumer.model.streams import HASH_KEYS
from tests.support.doctor import HALF, found, member, row, seen

if TYPE_CHECKING:
    from kinesumer.admin.snapshot import Snapshot


from kinesumer.admin.doctor.finding import Severity
from kinesumer.admin.doctor.ownership import orphan_shards
from kinesumer.model.streams import Shard
from tests.support.doctor import ARN, listed

CHILDREN = [
    Shard("shardId-1", HALF, HASH_KEYS - 1),
    Shard("shardId-2", 0, 9, ("shardId-0",)),
    Shard("shardId-3", 10, HALF - 1, ("shardId-0",)),
]


def test_a_row_of_an_unlisted_shard_means_lost_records() -> None:
    one, *_ = orphan_shards(seen(streams={ARN: listed(listing=CHILDREN)}))
    assert one.severity is Severity.CRITICAL
    assert "no longer lists shardId-0" in one.text


def test_a_row_that_has_ended_may_be_gone() -> None:
    ended = found([row(0, ended=True), row(1)])
    texts = [one.text for one in orphan_shards(seen(ended, streams={ARN: listed()}))]
    assert texts == []


def test_shards_without_rows_are_reported() -> None:
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


def test_shards_without_rows_are_a_note_if_no_client_is_alive() -> None:
    listing = [Shard("shardId-0", 0, HALF - 1, (), True), *CHILDREN]
    dead = found([row(0, ended=True), row(1)], [member("a", dead=True)])
    [one] = orphan_shards(seen(dead, streams={ARN: listed(listing=listing)}))
    assert one.severity is Severity.NOTE


def test_a_listing_that_was_cut_off_proves_nothing() -> None:
    cut = listed(listing=[Shard("shardId-0", 0, HALF - 1)])
    assert not list(orphan_shards(seen(streams={ARN: cut})))


def test_a_shard_without_an_owner_is_reported_if_it_lasts() -> None:
    unowned = found([row(0, owner=""), row(1)])
    [one] = orphan_shards(seen(unowned))
    assert one.severity is Severity.WARNING
    assert "shardId-0 have had no living owner for 10 s; planned for a" in one.text
    assert not list(orphan_shards(seen(unowned, found())))
    [one] = orphan_shards(seen(unowned, seconds=30.0))
    assert one.severity is Severity.CRITICAL


def test_a_shard_of_a_dead_client_is_reported() -> None:
    [one] = orphan_shards(seen(found([row(0, owner="gone"), row(1)])))
    assert "no living owner" in one.text


def test_clients_that_are_all_drained_are_reported() -> None:
    idle = found([row(0, owner=""), row(1)], [member("a", drained=True)])
    [one] = orphan_shards(seen(idle))
    assert "all clients that consume the stream are drained" in one.text
    assert "--undo" in one.advice


def test_a_paused_shard_needs_no_owner() -> None:
    paused = found([row(0, owner="", paused=True), row(1)])
    assert not list(orphan_shards(seen(paused)))


def test_a_stream_that_no_client_consumes_is_reported() -> None:
    unwanted = found(
        [row(0, owner=""), row(1, owner="")], [member("a", streams=frozenset())]
    )
    [one] = orphan_shards(seen(unwanted))
    assert "no live client consumes this stream" in one.text


PAIR = [member("a", 0, HALF - 1), member("b", HALF, HASH_KEYS - 1)]


def moving(**more: Any) -> Snapshot:
    """Return a snapshot with a shard owned by a and planned for b."""
    return found([row(0), row(1, **more)], PAIR)


def test_a_shard_that_moves_in_both_snapshots_is_reported() -> None:
    [one] = stuck_hand_overs(seen(moving()))
    assert "shardId-1 have been on the way from a to b for 10 s" in one.text
    assert "waits for its handler" in one.advice


def test_a_stalled_giver_is_reported() -> None:
    [one] = stuck_hand_overs(seen(moving(), heartbeat_ages={"session of a": 5.0}))
    assert "a is stalled" in one.advice


def test_a_shard_that_has_arrived_isnt_reported() -> None:
    assert not list(stuck_hand_overs(seen(moving(), moving(owner="b", epoch=2))))
    assert not list(stuck_hand_overs(seen(moving(), moving(epoch=2))))
    assert not list(stuck_hand_overs(seen(found(), moving())))


def test_a_shard_that_waits_for_parents_that_ended_is_reported() -> None:
    parents = frozenset({"shardId-0"})
    waiting = row(1, owner="", ready=False, parents=parents)
    late = found([row(0, ended=True), waiting])
    [one] = stuck_hand_overs(seen(late))
    assert "shardId-1 still wait for parents" in one.text
    assert not list(stuck_hand_overs(seen(found([row(0), waiting]), late)))
