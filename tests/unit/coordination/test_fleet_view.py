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


def watch(view: FleetView, since: float, until: float, *table: Row) -> None:
    """Let a client read the same leases once a second."""
    for second in range(round(until - since) + 1):
        view.observe_all(table, since + second, since + second)


def free(view: FleetView, reach: list[str] = IDS) -> list[str]:
    """Return the shards of the range ``reach`` that the client may claim."""
    view.offer(reach)
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


def test_only_open_leases_that_no_client_holds_are_those_of_others() -> None:
    assert not view_of(lease_row(IDS[0], checkpoint="SHARD_END")).has_others
    assert view_of(*worker_leases("w1", 0, 1)).has_others


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
    renewed = worker_leases("w1", 0, 1, counter=2)
    watch(view, 1.0, 5.0, *worker_leases("w1", 0, 1))
    watch(view, 6.0, 15.0, *renewed)
    assert free(view) == []
    watch(view, 16.0, 16.0, *renewed)
    assert free(view) == [IDS[0]]


def test_a_lease_is_watched_anew_after_a_gap_between_scans() -> None:
    table = worker_leases("w1", 0, 1)
    view = view_of(*table)
    watch(view, 1.0, 8.0, *table)
    # In the gap, the worker may not have been able to renew it.
    watch(view, 15.0, 24.0, *table)
    assert free(view) == []
    watch(view, 25.0, 25.0, *table)
    assert free(view) == [IDS[0]]


def test_the_time_in_which_an_answer_waited_does_not_count() -> None:
    table = worker_leases("w1", 0, 1)
    view = view_of(*table)
    watch(view, 1.0, 8.0, *table)
    view.observe_all(table, 9.0, 1000.0)  # the client was paused during the read
    assert free(view) == []
    view.observe_all(table, 1000.0, 1000.0)
    assert free(view) == []


def test_at_most_one_lease_is_stolen_between_two_scans() -> None:
    table = worker_leases("w1", 0, 8)
    view = view_of(*table)
    (first,) = free(view)
    assert free(view) == [first]
    others = [shard_id for shard_id in IDS if shard_id != first]
    assert free(view, others) == []  # another range of the same client
    view.observe_all(table, 2.0, 2.0)
    assert len(free(view)) == 1


def test_leases_of_a_dead_worker_are_taken_whatever_the_share_is() -> None:
    dead, alive = worker_leases("w1", 0, 4), worker_leases("w2", 4, 2)
    view = view_of(*dead, *alive)
    watch(view, 1.0, 8.0, *dead, *alive)
    renewed = [row | {"leaseCounter": 2} for row in alive]
    watch(view, 9.0, FAILOVER_SECONDS, *dead, *renewed)
    assert free(view) == IDS[:4]


def test_leases_that_wait_for_their_parents_do_not_count() -> None:
    parent = worker_leases("w1", 0, 1)[0]
    waiting = lease_row(IDS[1], parentShardId=frozenset({IDS[0]}))
    view = view_of(parent, waiting, *worker_leases("w1", 2, 2))
    assert len(free(view)) == 1  # stolen, although a lease has no owner


def entry(worker: str, updated_at: int) -> Row:
    """Return the entry of a KCL 3 worker in the lease table."""
    kind = "WORKER_METRIC_STATS"
    return {"leaseKey": worker, "entityType": kind, "lut": updated_at}


def test_the_heir_is_the_living_kcl_3_worker_with_the_fewest_leases() -> None:
    entries = [entry("w1", 100), entry("w2", 100), entry("w3", 40)]
    old = [*worker_leases("w2", 0, 2), *worker_leases("w1", 2, 1)]
    assert view_of(*old).heir(100.0) is None
    view = view_of(*entries, *old)
    assert view.heir(100.0) == "w1"
    view.observe(worker_leases("w1", 3, 1)[0], 1.0)
    view.observe(worker_leases("w1", 4, 1)[0], 1.0)
    assert view.heir(100.0) == "w2"
    assert view.heir(160.0) is None
    view.note_workers({"w4": 100})
    assert view.heir(100.0) == "w4"


def test_workers_that_take_leases_as_in_kcl_2_are_no_heirs() -> None:
    mode: Row = {
        "leaseKey": "Migration3.0",
        "entityType": "CLIENT_VERSION_MIGRATION",
        "cv": "CLIENT_VERSION_UPGRADE_FROM_2X",
    }
    view = view_of(entry("w1", 100), mode)
    assert view.heir(100.0) is None
    upgraded = mode | {"cv": "CLIENT_VERSION_3X_WITH_ROLLBACK"}
    view.observe_all([entry("w1", 100), upgraded], 1.0, 1.0)
    assert view.heir(100.0) == "w1"


def test_a_worker_whose_lease_has_expired_is_no_heir() -> None:
    table = [entry("w1", 100), *worker_leases("w1", 0, 1)]
    view = view_of(*table)
    watch(view, 1.0, 10.0, *table)
    assert view.heir(100.0) is None


def test_a_lease_that_is_assigned_to_a_dead_worker_stays_available() -> None:
    table = [entry("w1", 5), *worker_leases("w1", 0, 2)]
    theirs = worker_leases("w2", 2, 2)
    view = view_of(*table, *theirs)
    renewed = [row | {"leaseCounter": 2} for row in theirs]
    watch(view, 1.0, 8.0, *table, *theirs)
    watch(view, 9.0, 10.0, *table, *renewed)
    assert free(view) == IDS[:2]  # w1 is dead, and the share is two
    # The leader of KCL 3 gives a lease of another worker to it.
    assigned = renewed[0] | {"leaseOwner": "w1", "leaseCounter": 3}
    view.observe_all([*table, assigned, renewed[1]], 11.0, 11.0)
    assert view.leases[IDS[2]].since == 9.0
    alive = assigned | {"leaseCounter": 4}
    view.observe_all([*table, alive, renewed[1]], 12.0, 12.0)
    assert view.leases[IDS[2]].since == 12.0


@pytest.mark.parametrize("entries", [[], [entry("w1", 5), entry("w2", 5)]])
def test_a_lease_that_an_idle_worker_has_taken_is_not_available(
    entries: list[Row],
) -> None:
    mine, dead = worker_leases("w1", 0, 1), worker_leases("w2", 1, 1)
    view = view_of(*entries, *mine, *dead)
    # w1 has ended its shard, and waits for another one.
    watch(view, 1.0, 12.0, *entries, *dead)
    assert free(view) == [IDS[1]]
    taken = dead[0] | {"leaseOwner": "w1", "leaseCounter": 2}
    view.observe_all([*entries, taken], 13.0, 13.0)
    assert free(view) == []


def test_a_worker_of_kcl_2_that_takes_a_lease_is_alive() -> None:
    table = worker_leases("w1", 0, 2)
    view = view_of(*table)
    watch(view, 1.0, 10.0, *table)
    assert free(view) == IDS[:2]
    taken = table[0] | {"leaseOwner": "w2", "leaseCounter": 2}
    watch(view, 11.0, 11.0, taken, table[1])
    again = taken | {"leaseOwner": "w1", "leaseCounter": 3}
    watch(view, 12.0, 12.0, again, table[1])
    assert view.leases[IDS[0]].since == 12.0


def test_a_lease_that_the_leader_assigns_to_any_client_can_be_taken_at_once() -> None:
    client = {**entry("c2", 5), "kinesumer_app": APP}
    other = {**entry("c3", 5), "kinesumer_app": "other"}
    assigned = [worker_leases(f"c{n}", n, 1)[0] for n in (1, 2, 3)]
    view = view_of(client, other, *assigned, *worker_leases("w1", 4, 2))
    assert free(view) == IDS[1:3]
    # A worker that hands a lease over to the client still has it.
    handed = [row | {"checkpointOwner": "w1", "leaseCounter": 2} for row in assigned]
    view.observe_all([client, *handed, *worker_leases("w1", 4, 2)], 1.0, 1.0)
    assert not {*free(view)} & {*IDS[1:3]}


def test_leases_that_the_leader_takes_from_the_client_are_asked_back() -> None:
    row = worker_leases("w1", 0, 1)[0]
    view = view_of(row | {"checkpointOwner": "c1"}, *worker_leases("c1", 1, 1))
    assert [seen.shard_id for seen in view.asked_back()] == [IDS[0]]
    assert free(view) == [IDS[1]]
