"""More than one fleet under one app."""

from __future__ import annotations

from kinesumer.admin.doctor.finding import Severity
from kinesumer.admin.doctor.split_fleet import group_by_streams, split_fleet
from kinesumer.model.rows import QUERY, QUERY_ID
from tests.support.doctor import ARN, OTHER, found, member, seen

BOTH = frozenset({ARN, OTHER})


def test_kinesumer_for_go_beside_it_is_critical() -> None:
    [one] = split_fleet(seen(go_clients=["go-1"]))
    assert one.severity is Severity.CRITICAL
    assert "go-1" in one.text
    dead = found(members=[member("a", dead=True)])
    assert not list(split_fleet(seen(dead, go_clients=["go-1"])))


def test_a_spark_query_beside_clients_is_critical() -> None:
    query = member(QUERY_ID, kind=QUERY)
    [one] = split_fleet(seen(found(members=[member("a"), query])))
    assert "Spark query" in one.text
    assert not list(split_fleet(seen(found(members=[query]))))


def test_clients_that_share_no_stream_are_two_fleets() -> None:
    apart = [member("a"), member("b", streams=frozenset({OTHER}))]
    [one] = split_fleet(seen(found(members=apart)))
    assert one.severity is Severity.WARNING
    assert "a consume orders; b consume clicks" in one.text


def test_lists_that_overlap_make_one_fleet() -> None:
    between = member("c", streams=BOTH)
    together = [member("a"), member("b", streams=frozenset({OTHER})), between]
    assert len(group_by_streams(together)) == 1
    assert not list(split_fleet(seen(found(members=together))))


def test_a_client_that_registers_again_is_reported() -> None:
    again = member("a", incarnation=5)._replace(session="another")
    [one] = split_fleet(seen(found(), found(members=[again])))
    assert one.severity is Severity.WARNING
    assert one.subject == "client a"
    assert "registered again" in one.text


def test_a_client_that_a_deploy_restarts_is_noted_only() -> None:
    before = found(members=[member("a", incarnation=1)])
    after = found(members=[member("a", incarnation=2)._replace(session="another")])
    [one] = split_fleet(seen(before, after))
    assert one.severity is Severity.NOTE
