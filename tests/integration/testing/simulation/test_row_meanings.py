"""Test what each attribute of a row means, by the facts of a simulated group.

``tests/unit/wire/test_rows_golden.py`` checks how given values are written and read.
Here the values themselves are checked: their units, what a counter counts, where a
range ends. Clients of other versions rely on both. An attribute with another meaning
needs another name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import cache
from math import inf
from typing import NamedTuple

from pytest import approx

from kinesumer.coordination import pauses
from kinesumer.model.positions import SEEN_SLACK_SECONDS
from kinesumer.model.rows import Row
from kinesumer.model.streams import Start
from kinesumer.ops.group import changes
from kinesumer.ports import Write
from kinesumer.testing.simulation.scenarios import Scenario
from kinesumer.testing.simulation.simulation import Operator, Simulation
from tests.support.row_examples import WRITES
from tests.support.simulated_group import flow

SCENARIO = Scenario(
    members=2,
    shards=(4,),
    static_ids=True,
    drift=0.0,
    labels=2,
    assignor="load",
    config={
        "lease_duration_seconds": 12.0,
        "commit_interval_seconds": 3.0,
        "rebalance_interval_seconds": 25.0,
        "max_shards": 9,
        "weight": 3,
    },
)
PARENT, LOW, HIGH = (f"shardId-00000000000{number}" for number in (1, 4, 5))
FIRST = "shardId-000000000000"
PARTITIONS = {
    "member": "member#app",
    "leader": "leader#app",
    "shard": "shard#app#arn:aws:kinesis:us-east-1:123456789012:stream/stream-0",
    "group": "group#app",
    "apps": "apps",
}
ARN = PARTITIONS["shard"].removeprefix("shard#app#")
HASH_KEYS = 1 << 128
# Attributes that this group doesn't have, or whose text has a format of its own, and
# what checks their meaning.
ELSEWHERE = {
    "sub_sequence_number": "the simulator's predicates I1 and I2",
    "suspect": "the simulator's predicate I16",
    "poison": "the simulator's predicate I16",
    "keeps": "tests/unit/coordination/test_shard_sync.py",
    "kind": "tests/unit/coordination/test_startup_checks.py",
    "resetting": "tests/unit/ops/group/test_reset.py",
    "fan_out": "tests/unit/wire/test_writes.py",
    "load": "tests/unit/wire/test_reports.py",
    "incidents": "tests/unit/wire/test_reports.py",
    "failures": "tests/unit/wire/test_reports.py",
}


class Applied(NamedTuple):
    """A write that the table has applied, its time, and the row after it."""

    at: float
    write: Write
    after: Row


class Story:
    """A group with a split, a death and a return, and then an operator's commands."""

    def __init__(self) -> None:
        self.log: list[Applied] = []
        self.sim = Simulation(SCENARIO, 1)
        self.sim.store.on_write.append(self._applied)
        self.sim.run(self._play)

    def _applied(self, write: Write, _: Row | None, after: Row | None) -> None:
        at = self.sim.loop.services.wall()
        self.log.append(Applied(at, write, after or {}))

    async def _play(self, sim: Simulation) -> None:
        flow(sim, 0.5)
        await sim.start_all()
        await asyncio.sleep(40)
        sim.split("stream-0", PARENT)
        await asyncio.sleep(20)
        sim.processes[0].machine.kill()
        await asyncio.sleep(30)
        sim.start_process("client-0")
        await asyncio.sleep(60)
        sim.producing = False
        await asyncio.sleep(10)
        self.calm_at, self.calm = sim.loop.services.wall(), self._rows()
        await self._act(lambda o: o.seek("stream-0", Start.TRIM_HORIZON, FIRST))
        await self._act(lambda o: pauses.pause(o.context, ARN, FIRST, "repairs"))
        await self._act(lambda o: pauses.pause(o.context, None, None, "a deploy"))
        await self._act(lambda o: changes.drain(o.context, "client-1"))
        self.ordered = self._rows()

    async def _act(self, work: Callable[[Operator], Awaitable[object]]) -> None:
        Operator(self.sim, "act", work)
        await asyncio.sleep(20)

    def _rows(self) -> dict[str, dict[str, Row]]:
        """Return the present rows by their kinds and names."""
        return {
            kind: {
                str(row["sk"]).rpartition("/")[2]: row
                for row in self.sim.store.rows(partition)
            }
            for kind, partition in PARTITIONS.items()
        }

    def writes(
        self, kind: str, attribute: str, name: str = "", until: float = inf
    ) -> list[Applied]:
        """Return the writes that set an attribute, by default of all rows of a kind."""
        return [
            one
            for one in self.log
            if one.write.key.pk == PARTITIONS[kind]
            and attribute in one.write.set
            and one.write.key.sk.endswith(name)
            and one.at <= until
        ]

    def count(self, kind: str, attribute: str, name: str = "") -> int:
        """Return how many writes had set an attribute when the group was calm."""
        return len(self.writes(kind, attribute, name, self.calm_at))


@cache
def story() -> Story:
    return Story()


def seconds(text: object) -> float:
    """Return a time that a row has as text, in seconds since 1970."""
    moment = datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%S.%fZ")
    return moment.replace(tzinfo=UTC).timestamp()


def about(moment: float) -> object:
    """Return what equals a time in ms, up to the error of a client's estimate."""
    return approx(1000 * moment, abs=1500)


def without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def test_a_members_row_has_its_session_its_settings_and_its_part_of_the_plan() -> None:
    row = story().calm["member"]["client-0"]
    registrations = story().writes("member", "incarnation", "client-0")
    heartbeats = [
        one
        for one in story().writes("member", "beat", "client-0", story().calm_at)
        if one.at > registrations[-1].at
    ]

    assert without(row, "load", "last_update") == {
        "pk": "member#app",
        "sk": "client-0",
        "session": registrations[-1].write.set["session"],
        "incarnation": len(registrations) - 1,
        "beat": len(heartbeats),
        "lease_ms": 12_000,
        "commit_ms": 3_000,
        "weight": 3,
        "max_shards": 9,
        "label": story().sim.config_of("client-0").label,
        "state": "up",
        "dead": False,
        "streams": frozenset({ARN}),
        "clients": 2,
        "index": 0,
        # The stream's place in ``streams``, and the first and the last hash key.
        "range": f"0:{3 * HASH_KEYS // 8:x}-",
        "leader_epoch": story().calm["leader"]["leader"]["leader_epoch"],
        "plan_version": story().calm["leader"]["leader"]["plan_version"],
    }


def test_the_parts_of_a_plan_include_both_ends_and_meet() -> None:
    row = story().calm["member"]["client-1"]

    assert row["range"] == f"0:0-{3 * HASH_KEYS // 8 - 1:x}"
    assert row["index"] == 1


def test_a_members_last_update_is_the_time_of_the_write_in_utc() -> None:
    for one in story().writes("member", "last_update"):
        assert 1000 * seconds(one.write.set["last_update"]) == about(one.at)


def test_a_member_is_dead_from_its_mark_until_another_session_has_the_row() -> None:
    changes = story().writes("member", "dead", "client-0")

    assert [one.after["dead"] for one in changes] == [False, True, False]
    assert [one.after["incarnation"] for one in changes] == [0, 0, 1]


def test_the_leaders_row_counts_terms_and_plans_of_all_leaders() -> None:
    plans = story().writes("leader", "planned_at", until=story().calm_at)

    assert story().calm["leader"]["leader"] == {
        "pk": "leader#app",
        "sk": "leader",
        "session": story().calm["member"]["client-1"]["session"],
        "client_id": "client-1",
        "leader_epoch": story().count("leader", "session"),
        "plan_version": len(plans),
        "assignor": "load",
        "rebalance_ms": 25_000,
        "planned_at": about(plans[-1].at),
    }


def test_a_shards_row_has_its_owner_its_checkpoint_and_its_place_in_the_stream() -> (
    None
):
    row = story().calm["shard"][HIGH]

    assert without(row, "sequence_number", "tip") == {
        "pk": PARTITIONS["shard"],
        "sk": f"{3 * HASH_KEYS // 8:032x}/{HIGH}",
        "last_hash": f"{HASH_KEYS // 2 - 1:032x}",
        "parents": frozenset({PARENT}),
        "start": "TRIM_HORIZON",
        "owner": story().calm["member"]["client-0"]["session"],
        "owner_id": "client-0",
        "claim": story().writes("shard", "claim", HIGH)[2].write.set["claim"],
        "epoch": story().count("shard", "claim", HIGH),
        "ended": False,
        "ready": True,
    }


def test_a_row_of_an_ended_shard_has_no_owner() -> None:
    row = story().calm["shard"][PARENT]

    assert row["ended"] is True
    assert row.keys() & {"owner", "owner_id", "claim"} == set()


def test_a_checkpoint_is_the_last_record_that_is_done() -> None:
    for shard_id, row in story().calm["shard"].items():
        *_, (number, _) = story().sim.checker.shards[ARN, shard_id].index
        assert row["sequence_number"] == number


def test_a_tip_is_a_time_at_which_no_record_came_after_its_number() -> None:
    tips = story().writes("shard", "tip")
    assert tips
    for one in tips:
        moment, number = str(one.write.set["tip"]).split(" ")
        trace = story().sim.checker.shards[ARN, one.write.key.sk.partition("/")[2]]
        later = [
            arrived
            for (each, _), arrived in zip(trace.index, trace.arrivals, strict=True)
            if int(each) > int(number)
        ]
        # A read may miss records that arrived in the minute before it.
        assert 1000 * seconds(moment) == about(one.at - SEEN_SLACK_SECONDS)
        assert min(later, default=inf) >= seconds(moment)


def test_a_claim_from_the_dead_counts_the_owners_that_died_and_has_kinesis_time() -> (
    None
):
    claims = story().writes("shard", "deaths")

    assert claims
    for one in claims:
        assert one.write.set["deaths"] == 1
        assert one.write.set["died_at"] == about(one.at)


def test_a_note_has_the_record_that_user_code_gets_and_its_number() -> None:
    notes = story().writes("shard", "tried")

    assert notes
    for one in notes:
        trace = story().sim.checker.shards[ARN, one.write.key.sk.partition("/")[2]]
        assert (one.write.set["tried"], None) in trace.index
        assert one.write.set["notes"] == 1


def test_a_seek_and_a_claim_each_raise_the_epoch_by_one() -> None:
    claims = story().writes("shard", "claim", FIRST)

    assert [one.after["epoch"] for one in claims] == [1, 2, 4]
    assert story().ordered["shard"][FIRST]["epoch"] == 4


def test_rows_have_an_operators_orders() -> None:
    rows = story().ordered

    assert rows["shard"][FIRST]["paused"] is True
    assert rows["shard"][FIRST]["pause_reason"] == "repairs"
    assert rows["group"]["group"]["paused"] is True
    assert rows["group"]["group"]["pause_reason"] == "a deploy"
    assert rows["member"]["client-1"]["drained"] is True
    assert "drained" not in rows["member"]["client-0"]
    # One for each order about shards: the seek and both pauses.
    assert {row["notice"] for row in rows["member"].values()} == {3}


def test_the_groups_rows_have_its_identity_and_that_of_each_stream() -> None:
    stream = story().sim.kinesis.stream("stream-0")
    group = story().calm["group"]

    assert group["group"] == {
        "pk": "group#app",
        "sk": "group",
        "group_id": story().writes("group", "group_id")[0].write.set["group_id"],
        "version": 1,
    }
    assert group["stream-0"] == {
        "pk": "group#app",
        "sk": f"stream#{ARN}",
        "stream_created_at": repr(stream.created_at),
        "start": "TRIM_HORIZON",
        "baseline": True,
    }


def test_the_row_of_an_app_has_the_streams_that_it_polls_and_the_time() -> None:
    updates = story().writes("apps", "updated_at", until=story().calm_at)

    assert story().calm["apps"]["app"] == {
        "pk": "apps",
        "sk": "app",
        "streams": frozenset({ARN}),
        "updated_at": about(updates[-1].at),
    }


def test_every_attribute_has_a_test_of_its_meaning() -> None:
    written = {name for write in WRITES.values() for name in write.set}
    here = {name for one in story().log for name in one.after}

    assert written - here <= ELSEWHERE.keys()
    assert here - written == {"pk", "sk"}
