"""Test which shards a batch may read, and that two offsets determine its ranges."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.core.batch_ranges import (
    Limits,
    Probed,
    ProbedRecord,
    Readable,
    Share,
    admit,
    between,
    readable,
    seen_at,
    still_needed,
    vanished,
)
from kinesumer.errors import CorruptOffsetError
from kinesumer.model.positions import (
    BEGINNING,
    END,
    After,
    At,
    End,
    Position,
    ShardPosition,
    StreamOffset,
)
from kinesumer.model.streams import HASH_KEYS, Shard, ShardKey, Start

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
AT = Start(type="AT_TIMESTAMP", timestamp=5.5)


def after(number: int, seen: float = 1.0) -> After:
    return After(Position(str(number)), seen)


def offset(
    shards: dict[str, ShardPosition], created: float = 7.0, **more: Any
) -> dict[str, StreamOffset]:
    return {ARN: StreamOffset(created, shards, **more)}


def test_a_batch_reads_from_one_offset_up_to_the_next() -> None:
    start = offset({"a": after(9), "b": after(5), "c": AT, "d": END, "e": AT})
    end = offset(
        {"a": after(10), "b": after(5, 9.0), "c": END, "d": END, "e": AT, "f": after(1)}
    )
    assert between(start, end) == {
        ARN: {"a": (after(9), after(10)), "c": (AT, END), "f": (BEGINNING, after(1))}
    }


def test_a_new_streams_first_batch_begins_where_its_end_says() -> None:
    end = offset(
        {"a": after(3), "b": AT, "c": END}, origin={"a": AT, "b": AT, "c": END}
    )
    assert between({}, end) == {ARN: {"a": (AT, after(3))}}
    # The stream was recreated, so the old stream's offset is ignored.
    old = offset({"a": after(9)}, created=6.0)
    assert between(old, end) == {ARN: {"a": (AT, after(3))}}
    # One position has expired; the others are unchanged.
    mended = offset({"a": after(11), "b": after(6)}, origin={"a": AT})
    assert between(offset({"a": after(9), "b": after(5)}), mended)[ARN] == {
        "a": (AT, after(11)),
        "b": (after(5), after(6)),
    }


def test_a_batch_that_goes_back_is_refused() -> None:
    with pytest.raises(CorruptOffsetError, match="would go back"):
        between(offset({"a": after(10)}), offset({"a": after(9)}))


# --- shards --------------------------------------------------------------------------


def shard(
    name: str, *parents: str, closed: bool = False, half: int | None = None
) -> Shard:
    first = 0 if half in (None, 0) else HASH_KEYS // 2
    last = HASH_KEYS // 2 - 1 if half == 0 else HASH_KEYS - 1
    return Shard(name, first, last, parents, "9" if closed else None)


def names(known: dict[str, ShardPosition], shards: list[Shard]) -> list[str]:
    return [item.shard.shard_id for item in readable(offset(known)[ARN], shards)]


def test_children_wait_for_all_their_parents() -> None:
    family = [
        shard("s1", closed=True),
        shard("s2", closed=True),
        shard("s3", "s1", "s2", closed=True),
        shard("s4", "s3"),
    ]
    assert names({"s1": AT, "s2": AT}, family) == ["s1", "s2"]
    assert names({"s1": END, "s2": after(3)}, family) == ["s2"]
    assert names({"s1": END, "s2": END}, family) == ["s3"]
    assert names({"s1": END, "s2": END, "s3": END}, family) == ["s4"]
    # A finished shard isn't read again if it is listed again.
    assert names({"s4": after(3)}, family) == ["s4"]
    # A child doesn't wait for a parent that neither offset nor listing contains.
    assert names({}, family[3:]) == ["s4"]


def test_a_child_holds_nothing_older_than_its_parents_ends() -> None:
    family = [
        shard("s1", closed=True),
        shard("s2", closed=True),
        shard("s3", "s1", "s2"),
    ]
    known = StreamOffset(7.0, {"s1": End(30.0), "s2": End(20.0)}, anchored_at=10.0)
    [child] = readable(known, family)
    assert (child.position, child.seen) == (BEGINNING, 20.0)


def test_only_a_complete_listing_proves_that_a_shard_is_gone() -> None:
    known = offset({"s1": END, "s2": after(1), "s3": AT})[ARN]
    whole = [shard("s3", half=0), shard("s4", half=1)]
    assert vanished(known, whole) == ["s2"]
    assert still_needed(known, whole) == {"s2": after(1), "s3": AT}
    for partial in ([shard("s3", half=0)], [shard("s2", half=0), shard("s21", half=1)]):
        assert vanished(known, partial) == []
        assert still_needed(known, partial) == known.shards


def test_with_targets_only_shards_with_a_target_are_read() -> None:
    family = [shard("s1", closed=True), shard("s2"), shard("s3")]
    targets: dict[str, ShardPosition] = {"s1": after(3), "s2": END}
    found = readable(offset({})[ARN], family, targets)
    assert [(item.shard.shard_id, item.ends) for item in found] == [
        ("s1", False),
        ("s2", True),
    ]
    assert Readable(shard("s1", closed=True), BEGINNING, 0.0).ends


def test_a_position_tells_when_its_records_arrived_at_the_earliest() -> None:
    positions: list[ShardPosition] = [after(3, 4.0), At("3", 4.0), AT, BEGINNING, END]
    assert [seen_at(position) for position in positions] == [4.0, 4.0, 5.5, None, None]


A, B, C = (ShardKey("arn", shard_id) for shard_id in "abc")


def found(number: int, arrived_at: float, size: int = 100) -> ProbedRecord:
    return ProbedRecord(Position(str(number)), arrived_at, size)


def sample(*arrivals: float, whole: bool = True, size: int = 100) -> Probed:
    records = [found(i, arrived, size) for i, arrived in enumerate(arrivals)]
    return Probed(records, None, whole)


def test_the_oldest_records_are_admitted_first() -> None:
    samples = {A: sample(1.0, 2.0, 3.0, 4.0), B: sample(2.5, 2.6, 9.0)}
    assert admit(samples, Limits(rows=4)) == {A: Share(2), B: Share(2)}
    assert admit(samples, Limits(bytes=350)) == {A: Share(2), B: Share(1)}


def test_a_batch_makes_progress_whatever_the_limit() -> None:
    assert admit({A: sample(1.0, size=5_000)}, Limits(bytes=1)) == {A: Share(1)}


def test_records_after_the_samples_are_admitted_by_time() -> None:
    samples = {
        A: sample(*(i / 10 for i in range(101)), whole=False),
        B: sample(5.0, 50.0, 60.0, 500.0),
    }
    shares = admit(samples, Limits(rows=522))
    # At 100 rows per ten seconds, another 420 rows arrive within 42 seconds.
    assert shares[A].until == pytest.approx(51.5, abs=1)
    assert shares[B].records == 2


def test_no_record_is_admitted_that_arrived_after_the_common_end() -> None:
    samples = {
        A: sample(1.0, 2.0, 3.0, whole=False),
        B: sample(2.5, 2.6, 9.0, whole=False).arrived_by(6.0),
        C: sample(7.0).arrived_by(6.0),
    }
    assert admit(samples, Limits(), 6.0) == {A: Share(3, 6.0), B: Share(2), C: Share(0)}
    assert admit(samples, Limits(rows=2), 6.0)[A] == Share(2)


def test_records_of_an_ended_shard_count_as_arrived_by_its_end() -> None:
    counted = sample(1.0, 9.0).capped_at(6.0)
    assert counted.records == [found(0, 1.0), found(1, 6.0)]


def test_a_burst_shows_that_the_server_does_not_limit_writes() -> None:
    burst = {A: sample(*(i / 6_000 for i in range(600)), whole=False)}
    until = admit(burst, Limits(rows=6_600))[A].until
    assert until == pytest.approx(1.1, abs=0.01)


def test_without_limits_all_records_are_admitted() -> None:
    assert not Limits().any
    samples = {A: sample(1.0, whole=False), B: sample(2.0)}
    assert admit(samples, Limits()) == {A: Share(1, float("inf")), B: Share(1)}
