"""Test what a client sees of a fleet's leases, and which ones it may take."""

from __future__ import annotations

from random import Random

import pytest

from kinesumer.coordination.fleet_view import FleetView
from kinesumer.errors import ConfigurationError
from kinesumer.model.rows import Row, ShardRow
from kinesumer.wire import rows
from tests.support.fleet import FAILOVER_SECONDS, lease_row
from tests.support.world import APP, ARN

IDS = [f"shardId-{number:012}" for number in range(8)]


def view_of(*table: Row, now: float = 0.0) -> FleetView:
    view = FleetView(APP, "c1", FAILOVER_SECONDS, Random(0))
    view.observe_all(table, now, now)
    return view


def worker_leases(worker: str, first: int, count: int, counter: int = 1) -> list[Row]:
    return [
        lease_row(shard_id, leaseOwner=worker, leaseCounter=counter)
        for shard_id in IDS[first : first + count]
    ]


def free(view: FleetView, now: float, reach: list[str] = IDS) -> list[str]:
    """Return the shards of the range ``reach`` that the client may claim."""
    view.offer(reach, now)
    found = [shard(view, key) for key in view.leases if key in reach]
    return [row.key.shard_id for row in found if not row.owner and row.ready]


def shard(view: FleetView, lease_key: str) -> ShardRow:
    seen = view.leases[lease_key]
    key = view.key_of(ARN, seen)
    assert key is not None
    return rows.read_shard(view.shard_row(key, seen, "LATEST"))


def test_an_older_answer_does_not_replace_a_newer_one() -> None:
    view = view_of(lease_row(IDS[0], leaseCounter=5))
    seen = view.observe(lease_row(IDS[0], leaseCounter=4), 1.0)
    assert seen.counter == view.leases[IDS[0]].counter == 5


def test_a_lease_that_a_scan_misses_is_forgotten_unless_it_is_newer() -> None:
    view = view_of(lease_row(IDS[0]), lease_row(IDS[1]))
    view.observe(lease_row(IDS[1], leaseCounter=1), 5.0)
    view.observe_all([], 4.0, 6.0)
    assert list(view.leases) == [IDS[1]]
    view.forget(IDS[1])
    view.forget(IDS[1])
    assert not view.leases


def test_rows_of_other_types_are_left_out_and_show_that_rows_have_types() -> None:
    assert not view_of(lease_row(IDS[0])).has_types
    other: Row = {"leaseKey": "w1", "entityType": "WORKER_METRIC_STATS"}
    view = view_of(lease_row(IDS[0], entityType="LEASE"), other)
    assert view.has_types and list(view.leases) == [IDS[0]]


def test_an_ambiguous_stream_is_an_error() -> None:
    keys = [f"123456789012:orders:{epoch}:{IDS[0]}" for epoch in (1, 2)]
    view = view_of(*map(lease_row, keys))
    with pytest.raises(ConfigurationError, match="several sets of leases"):
        view.stream_of(ARN)
    view.forget(keys[0])
    assert str(view.stream_of(ARN)) == "123456789012:orders:2"


def test_a_child_is_ready_when_its_parents_have_ended_or_have_no_lease() -> None:
    parents = frozenset(IDS[:2])
    child = lease_row(IDS[2], parentShardId=parents)
    view = view_of(child, lease_row(IDS[0]), lease_row(IDS[1], checkpoint="SHARD_END"))
    assert not shard(view, IDS[2]).ready
    assert view.children_of(view.leases[IDS[0]]) == {IDS[2]}
    view.forget(IDS[0])
    assert shard(view, IDS[2]).ready


def test_a_renewed_lease_is_watched_anew() -> None:
    view = view_of(*worker_leases("w1", 0, 1))
    view.observe_all(worker_leases("w1", 0, 1, counter=2), 6.0, 6.0)
    assert free(view, 15.9) == []
    assert free(view, 16.0) == [IDS[0]]


def test_at_most_one_lease_is_stolen_between_two_scans() -> None:
    table = worker_leases("w1", 0, 8)
    view = view_of(*table)
    (first,) = free(view, 1.0)
    assert free(view, 1.1) == [first]
    others = [shard_id for shard_id in IDS if shard_id != first]
    assert free(view, 1.2, others) == []  # another range of the same client
    view.observe_all(table, 2.0, 2.0)
    assert len(free(view, 2.0)) == 1


def test_leases_without_an_owner_beyond_the_share_are_left_to_others() -> None:
    table = [*worker_leases("w1", 0, 2), *map(lease_row, IDS[2:6])]
    view = view_of(*table)
    assert len(free(view, 0.0)) == 3
    left = [shard(view, i) for i in IDS[2:6] if shard(view, i).owner]
    assert [(row.owner, row.is_foreign) for row in left] == [("kcl:", True)]
    renewed = [*worker_leases("w1", 0, 2, counter=2), *table[2:]]
    view.observe_all(renewed, 9.0, 9.0)
    assert len(free(view, FAILOVER_SECONDS)) == 4  # nobody has taken it


def test_leases_that_wait_for_their_parents_do_not_count() -> None:
    parent = worker_leases("w1", 0, 1)[0]
    waiting = lease_row(IDS[1], parentShardId=frozenset({IDS[0]}))
    view = view_of(parent, waiting, *worker_leases("w1", 2, 2))
    assert len(free(view, 0.0)) == 1  # stolen, although a lease has no owner


def test_a_lease_that_is_assigned_to_a_dead_worker_stays_available() -> None:
    table = worker_leases("w1", 0, 2)
    view = view_of(*table, *worker_leases("w2", 2, 2))
    renewed = worker_leases("w2", 2, 2, counter=2)
    view.observe_all([*table, *renewed], 9.0, 9.0)
    assert free(view, 10.0) == IDS[:2]  # w1 is dead, and the share is two
    # The leader of KCL 3 gives a lease of another worker to it.
    assigned = worker_leases("w1", 2, 1, counter=3)
    other = worker_leases("w2", 3, 1, counter=3)
    view.observe_all([*table, *assigned, *other], 18.0, 18.0)
    assert view.leases[IDS[2]].since == 9.0
    alive = worker_leases("w1", 2, 1, counter=4)
    view.observe_all([*table, *alive, *other], 19.2, 19.2)
    assert view.leases[IDS[2]].since == 19.2


def test_a_client_takes_what_another_one_has_released_for_it() -> None:
    released = lease_row(IDS[0], kinesumer_released=4, leaseCounter=4)
    mine = [
        row
        | {"kinesumer_app": APP, "kinesumer_counter": 1, "kinesumer_owner_id": "c1"}
        | {"kinesumer_owner": "s1"}
        for row in worker_leases("c1", 1, 3)
    ]
    view = view_of(released, *mine, *worker_leases("w1", 4, 2))
    assert free(view, 0.0) == [IDS[0]]  # beyond its share of three
    view.observe(released | {"leaseCounter": 5}, 1.0)
    assert free(view, 1.0) == []
