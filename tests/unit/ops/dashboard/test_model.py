"""Test the page's model: lanes, colours and history, and how records are shown."""

from __future__ import annotations

from base64 import b64decode

import pytest

from kinesumer.model.records import Record
from kinesumer.ops.dashboard.model import (
    DashboardInfo,
    State,
    StreamHistory,
    assign_lanes,
    assign_slots,
    build_state,
)
from kinesumer.ops.dashboard.records import (
    INDENTED_BYTES,
    SHOWN_BYTES,
    ShownRecord,
    show_record,
)
from kinesumer.ops.group.lag import Lags
from kinesumer.ops.group.observation import observe
from kinesumer.ops.group.status import GroupReport, report
from tests.support.toy_fleet import ToyFleet, arn_of, shard


def drawn(fleet: ToyFleet) -> State:
    found = reported(fleet)
    info = DashboardInfo("billing", "table")
    return build_state(found, info=info, at=0, every_seconds=2)


def reported(fleet: ToyFleet) -> GroupReport:
    observation = observe(None, fleet.snapshot(), Lags(fleet.millis, {}), 0)
    return report("billing", "table", observation)


def lanes(fleet: ToyFleet) -> dict[int, int]:
    """Return the lane of each visible shard, by the number in its id."""
    found = assign_lanes(reported(fleet).streams[0].shards)
    return {int(id_.removeprefix("shardId-")): lane for id_, lane in found.items()}


def test_grandchildren_are_below_children() -> None:
    fleet = ToyFleet(["a"], {"orders": 2})
    left, _ = fleet.split(shard(0))
    fleet.split(left)
    assert lanes(fleet) == {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2}


def test_parents_disappear_when_no_child_waits_for_them() -> None:
    fleet = ToyFleet(["a"], {"orders": 1})
    fleet.split(shard(0))
    fleet.end(shard(0))
    assert lanes(fleet) == {1: 0, 2: 0}


def test_an_ended_parent_stays_while_its_child_waits_for_another() -> None:
    fleet = ToyFleet(["a"], {"orders": 2})
    child, other = fleet.split(shard(0))
    del fleet.shards[other]
    parents = frozenset({shard(0).shard_id, shard(1).shard_id})
    last = fleet.shards[shard(1)].last_hash
    fleet.change_shard(child, parents=parents, last_hash=last)
    fleet.end(shard(0))
    assert lanes(fleet) == {0: 0, 1: 0, 2: 1}


def test_unowned_shards_are_neglected_unless_paused() -> None:
    fleet = ToyFleet(["a"], {"orders": 4})
    fleet.split(shard(3))
    fleet.own(shard(0), None)
    fleet.change_shard(shard(1), paused=True)
    fleet.own(shard(1), None)
    totals = drawn(fleet).totals
    assert (totals.shards, totals.owned) == (4, 2)
    assert (totals.paused, totals.neglected) == (1, 1)


def test_clients_keep_their_colours_and_plain_ones_go_first() -> None:
    known = assign_slots({}, ["a", "b", "c"])
    assert len(set(known.values())) == 3
    assert all(slot < 8 for slot in known.values())
    more = assign_slots(known, [f"client-{i}" for i in range(29)] + ["a", "b", "c"])
    assert {name: more[name] for name in known} == known
    assert sorted(more.values()) == list(range(32))
    assert max(assign_slots(more, [*more, "one too many"]).values()) < 32


def test_an_hour_is_retained_in_steps_of_ten_seconds() -> None:
    hour, fleet = StreamHistory(), ToyFleet(["a"], {"orders": 1})
    fleet.report_rates({arn_of("orders"): 100.0})
    for second in range(0, 4000, 2):
        fleet.millis[shard(0)] = 10_000 + second % 10
        hour.add(second, reported(fleet).streams)
    lines = hour.lines({})
    assert (lines.times[0], lines.times[-1], len(lines.times)) == (400, 3990, 360)
    (lag,) = lines.millis_behind
    (rate,) = lines.records_per_second
    assert (lag.name, set(lag.values)) == ("orders", {10_008})
    assert rate.values == [pytest.approx(100.0, rel=0.16)] * 360


def test_of_many_streams_the_busiest_have_lines() -> None:
    hour, fleet = StreamHistory(), ToyFleet([], {f"{i:02d}": 1 for i in range(20)})
    for i in range(20):
        fleet.millis[shard(0, f"{i:02d}")] = 10_000 + i
    hour.add(0, reported(fleet).streams)
    names = [line.name for line in hour.lines({}).millis_behind]
    assert names == [f"{i:02d}" for i in range(8, 20)]


def shown(data: bytes) -> ShownRecord:
    return show_record(Record("7", data, "key", 1.5))


def test_json_is_indented_and_keeps_its_digits() -> None:
    record = shown(b'{"id":12345678901234567890123,"names":["\xc3\xa9"]}')
    lines = '{\n  "id": 12345678901234567890123,\n  "names": [\n    "é"\n  ]\n}'
    assert (record.kind, record.text) == ("json", lines)


@pytest.mark.parametrize(
    "data", [b"hello\n\tw\xc3\xb6rld", b"{not json", b"", b"[" * 9999]
)
def test_other_text_is_unchanged(data: bytes) -> None:
    record = shown(data)
    assert (record.kind, record.text) == ("text", data.decode())


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a\x00b", b"\x1b[31mred", b"[\xff]"])
def test_what_is_not_text_is_in_base64(data: bytes) -> None:
    record = shown(data)
    assert (record.kind, b64decode(record.text)) == ("binary", data)


def test_only_the_beginning_of_large_data_is_shown() -> None:
    for data in (
        b"x" * 20_000,
        b"a" + "é".encode() * 10_000,
        b"[1" + b",1" * 10_000 + b"]",
    ):
        record = shown(data)
        assert record.kind == "text"
        assert (record.bytes, record.shown_bytes) == (len(data), SHOWN_BYTES)
        assert data.startswith(record.text.encode())
        assert SHOWN_BYTES - 4 < len(record.text.encode()) <= SHOWN_BYTES
    assert shown(b"\xff" * 20_000).kind == "binary"


def test_hostile_json_does_not_grow_without_limit() -> None:
    for data in (
        b"[" * 400 + b"1" + b",1" * 7_500 + b"]" * 400,
        b"[" * 900 + b"]" * 900,
    ):
        record = shown(data)
        assert (record.kind, record.text) == ("json", data.decode())
        assert len(record.text) <= INDENTED_BYTES
