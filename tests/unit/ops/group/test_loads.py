"""Test the loads of clients and shards, as reports show them."""

from __future__ import annotations

from typing import Any

from kinesumer.model.loads import Load
from kinesumer.ops.cli.console import print_lines
from kinesumer.ops.cli.tables import status_tables
from kinesumer.ops.group.loads import Rates
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.status import report
from tests.support.doctor import ARN, member, row, snapshot
from tests.support.stored_loads import stored_loads

STREAMS = frozenset({ARN})
LOW, HIGH = row(0, "a"), row(1, "b")
LIGHT, HEAVY = Load(1000.0, 10.0, 0.1), Load(2000.0, 20.0, 0.5)


def text(shard: Any, load: Load) -> str:
    return stored_loads({(shard.key, shard.first_hash): load}, STREAMS)


MEMBERS = [
    member("a", load=text(LOW, LIGHT)),
    member("b", load=text(HIGH, HEAVY)),
    member("c"),
]
STATUS = report("app", "table", FleetView(snapshot([LOW, HIGH], MEMBERS)))


def test_members_and_shards_have_the_load_that_is_reported() -> None:
    a, b, c = STATUS.members
    # A row holds loads in steps of some percent.
    assert a.load == Rates(949.0, 10.5, 0.1)
    assert b.load == Rates(2010.0, 19.1, 0.5)
    assert c.load is None
    # The last one owns no shards.
    assert [member.load_share for member in STATUS.members] == [0.5, 2.5, 0]
    low, high = STATUS.streams[0].shards
    assert (low.load, high.load) == (a.load, b.load)


def test_a_shard_with_more_work_than_a_clients_share_is_hot() -> None:
    low, high = STATUS.streams[0].shards
    assert (low.hot, high.hot) == (False, True)
    # Equal shards aren't hot, even if there are fewer of them than clients.
    equal = [member("a", load=text(LOW, HEAVY)), *MEMBERS[1:]]
    assert not FleetView(snapshot([LOW, HIGH], equal)).loads.hot_shards
    alone = FleetView(snapshot([LOW, HIGH], [MEMBERS[1]]))
    assert not alone.loads.hot_shards


def test_a_client_that_does_not_report_its_shards_yet_has_no_share() -> None:
    fleet = FleetView(snapshot([LOW, HIGH], [MEMBERS[0], member("b")]))
    assert fleet.loads.shares == {"a": 1}


def test_an_unreadable_load_is_unknown() -> None:
    fleet = FleetView(snapshot([LOW], [member("a", load="?")]))
    assert (fleet.loads.of_shards, fleet.loads.shares) == ({}, {})


def test_the_verbose_tables_show_loads(capsys: Any) -> None:
    print_lines(status_tables(STATUS, verbose=True))
    shown = capsys.readouterr().out
    assert "handler s/s" in shown
    assert "0.5" in shown
    print_lines(status_tables(STATUS))
    assert "handler s/s" not in capsys.readouterr().out
