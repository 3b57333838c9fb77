"""Hand-overs that don't end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesumer.admin.doctor.ownership import stuck_hand_overs
from kinesumer.model.streams import HASH_KEYS
from tests.unit.admin.doctor.looks import HALF, found, member, row, seen

if TYPE_CHECKING:
    from kinesumer.admin.snapshot import Snapshot

PAIR = [member("a", 0, HALF - 1), member("b", HALF, HASH_KEYS - 1)]


def moving(**more: Any) -> Snapshot:
    """Return a look at a shard of a's that is planned for b."""
    return found([row(0), row(1, **more)], PAIR)


def test_a_shard_that_moves_in_both_looks_is_told() -> None:
    [one] = stuck_hand_overs(seen(moving()))
    assert "shardId-1 have been on the way from a to b for 10 s" in one.text
    assert "waits for its handler" in one.advice


def test_a_giver_that_stands_still_is_told() -> None:
    [one] = stuck_hand_overs(seen(moving(), heartbeat_ages={"session of a": 5.0}))
    assert "a is stalled" in one.advice


def test_a_shard_that_has_arrived_isnt_told() -> None:
    assert not list(stuck_hand_overs(seen(moving(), moving(owner="b", epoch=2))))
    assert not list(stuck_hand_overs(seen(moving(), moving(epoch=2))))
    assert not list(stuck_hand_overs(seen(found(), moving())))


def test_a_shard_that_waits_for_parents_that_ended_is_told() -> None:
    parents = frozenset({"shardId-0"})
    waiting = row(1, owner="", ready=False, parents=parents)
    late = found([row(0, ended=True), waiting])
    [one] = stuck_hand_overs(seen(late))
    assert "shardId-1 still wait for parents" in one.text
    assert not list(stuck_hand_overs(seen(found([row(0), waiting]), late)))
