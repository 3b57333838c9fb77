"""Hash keys without a row, a plan or a listed shard."""

from __future__ import annotations

from kinesumer.admin.doctor.finding import Severity
from kinesumer.admin.doctor.hash_space import holes, uncovered_hash_keys
from kinesumer.model.streams import HASH_KEYS, Shard
from tests.support.doctor import ARN, HALF, found, listed, member, row, seen


def test_holes_are_the_ranges_between_and_around() -> None:
    assert holes([(0, HASH_KEYS - 1)]) == []
    assert holes([]) == [(0, HASH_KEYS - 1)]
    assert holes([(20, 29), (5, 9), (7, 12)]) == [
        (0, 4),
        (13, 19),
        (30, HASH_KEYS - 1),
    ]
    assert holes([(0, HASH_KEYS - 1), (3, 4)]) == []


def test_keys_without_a_row_are_critical_if_it_lasts() -> None:
    [one] = uncovered_hash_keys(seen(found([row(0)])))
    assert one.severity is Severity.CRITICAL
    assert "(50.0% in all)" in one.text
    assert not list(uncovered_hash_keys(seen(found([row(0)]), found())))
    assert not list(uncovered_hash_keys(seen(found(), found([row(0)]))))


def test_a_stream_that_isnt_listed_yet_has_no_holes() -> None:
    stream = found().streams[0]._replace(baseline=False)
    assert not list(uncovered_hash_keys(seen(found([row(0)], streams=[stream]))))


def test_an_ended_row_covers_nothing() -> None:
    assert list(uncovered_hash_keys(seen(found([row(0, ended=True), row(1)]))))


def test_keys_planned_for_no_client_are_reported_if_it_lasts() -> None:
    half = found(members=[member("a", 0, HALF - 1)])
    [one] = uncovered_hash_keys(seen(half))
    assert "planned for no client" in one.text
    assert not list(uncovered_hash_keys(seen(half, found())))


def test_a_missing_plan_is_ignored_while_it_spreads_or_without_clients() -> None:
    joining = found(members=[member("a", 0, HALF - 1), member("b", range=None)])
    assert not list(uncovered_hash_keys(seen(joining)))
    elsewhere = found(members=[member("a", streams=frozenset())])
    assert not list(uncovered_hash_keys(seen(elsewhere)))
    drained = found(members=[member("a", range=(), drained=True)])
    assert not list(uncovered_hash_keys(seen(drained)))


def test_keys_planned_for_two_are_reported_if_it_lasts() -> None:
    both = found(members=[member("a"), member("b", HALF, HASH_KEYS - 1)])
    [one] = uncovered_hash_keys(seen(both))
    assert "planned for two clients" in one.text
    assert not list(uncovered_hash_keys(seen(both, found())))


def test_a_listing_with_a_hole_is_reported() -> None:
    cut = listed(listing=[Shard("shardId-0", 0, HALF - 1)])
    [one] = uncovered_hash_keys(seen(streams={ARN: cut}))
    assert "don't tile" in one.text
