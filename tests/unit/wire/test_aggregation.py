"""Test that KPL aggregates are opened, and other records are left as they are."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kinesumer.model.positions import Position
from kinesumer.model.records import Record, Source, data_size
from kinesumer.model.streams import HASH_KEYS
from kinesumer.wire import aggregate_readers, aggregation
from kinesumer.wire.aggregation import KEYS_HASHED, MAGIC, open_all, open_in_steps
from kinesumer.wire.page_records import PageRecords
from tests.support.aggregates import (
    KEY,
    ONE,
    PART,
    WHOLE,
    User,
    count_outside,
    field,
    frame,
    inside,
    kinesis_record,
    message,
    open_records,
    opened,
    outside,
    users_in,
)
from tests.support.cbor import needs_compiled, packed_records

sizes = st.sampled_from([0, 1, 100, 119, 120, 123, 124, 127, 128, 300, 16_383, 16_400])
users = st.builds(
    User,
    st.text(max_size=40),
    st.none() | st.integers(0, HASH_KEYS - 1),
    st.binary(max_size=30) | sizes.map(bytes),
)


@given(st.lists(users, min_size=1, max_size=20))
@example([User(f"user-{n}", None, b"x" * 100) for n in range(300)])
@example([User("k", n, b"x") for n in range(300)])
@example([User(f"{n}", None, bytes(25)) for n in range(3400)])
def test_a_producers_user_records_come_out_again(put: list[User]) -> None:
    assert users_in(frame(message(put))) == put


def test_user_records_have_their_own_position_and_keys() -> None:
    data = frame(message([User("a", None, b"1"), User("b", 7, b"2")]))
    first, second = open_records([kinesis_record(data)], WHOLE).records
    assert first.position == Position("495", 0)
    assert second.position == Position("495", 1)
    assert second.partition_key == "b"
    assert second.explicit_hash_key == "7"
    assert second.arrived_at == kinesis_record(data).arrived_at
    assert second.fence == WHOLE.fence._replace(position=second.position)


def test_a_record_without_a_hash_key_doesnt_get_anothers() -> None:
    put = [User("a", 7, b"1"), User("b", None, b"2")]
    assert users_in(frame(message(put))) == put


def test_other_records_keep_their_order_around_an_aggregate() -> None:
    records = [
        kinesis_record(b"before", "1"),
        kinesis_record(frame(message([ONE, ONE])), "2"),
        kinesis_record(b"\xff after", "3"),
    ]
    result = open_records(records, WHOLE)
    places = [record.position.text for record in result.records]
    assert places == ["1", "2:0", "2:1", "3"]
    assert {record.source for record in result.records} == {WHOLE}
    assert result.last == "3"


def test_plain_records_get_their_source_and_stay_themselves() -> None:
    records = [kinesis_record(b"a"), kinesis_record(b"")]
    result = open_records(records, WHOLE)
    assert result.records is records
    assert records[0].stream == "s"


def test_a_page_of_nothing_has_no_last_record() -> None:
    assert open_records([], WHOLE) == ([], None, 0, [])


def test_an_aggregate_of_nothing_delivers_nothing_but_counts_as_read() -> None:
    for empty in (b"", KEY):
        result = open_records([kinesis_record(frame(empty), "88")], WHOLE)
        assert result == ([], "88", 0, [])


def test_only_aggregates_that_cannot_be_opened_are_reported() -> None:
    broken = frame(KEY + PART)[:-1] + b"!"
    whole = [kinesis_record(broken, "2"), kinesis_record(MAGIC, "4")]
    one = kinesis_record(frame(KEY + PART), "3")
    records = [kinesis_record(b"\xff", "1"), whole[0], one, whole[1]]
    result = open_records(records, WHOLE)
    assert result.unopened == whole
    assert [record.sequence_number for record in result.records] == list("1234")


def test_less_than_a_frame_or_another_digest_is_delivered_unchanged() -> None:
    for size in range(len(MAGIC) + 17):
        assert opened((MAGIC + bytes(17))[:size]) is None
    data = frame(KEY + PART)
    assert opened(data[:-1] + bytes([data[-1] ^ 1])) is None
    assert opened(data + b"x") is None


# --- the shard's range ---------------------------------------------------------------


LOWER = Source(WHOLE.fence, 0, HASH_KEYS // 2 - 1)


@given(st.lists(st.sampled_from(inside + outside), max_size=KEYS_HASHED))
def test_in_small_aggregates_each_record_outside_is_counted(
    keys: list[str],
) -> None:
    put = [User(key, None, b"") for key in keys]
    assert count_outside(put, LOWER) == sum(key in outside for key in keys)


def plain(*keys: str, hash_key: int | None = None) -> list[User]:
    """Return user records with these partition keys."""
    return [User(key, hash_key, b"") for key in keys]


UPPER = Source(WHOLE.fence, HASH_KEYS // 2, HASH_KEYS - 1)
LOST = User(inside[0], HASH_KEYS - 1, b"")


@pytest.mark.parametrize(
    ("put", "source", "expected"),
    [
        (plain(*inside), LOWER, 0),
        (plain(*inside[:4], *outside[:3]), UPPER, 4),
        # All keys of a large aggregate are hashed as soon as one lies outside.
        (plain(*outside[:1], *inside, *outside), LOWER, 1 + len(outside)),
        # Explicit hash keys replace the partition keys, and each of them is checked.
        (plain(*outside[:1] * 50, hash_key=5), LOWER, 0),
        ([*plain(*inside[:1] * 50, hash_key=5), LOST], LOWER, 1),
        # The first and the last hash key lie inside.
        ([User("k", n, b"") for n in (4, 5, 6, 9, 10)], Source(WHOLE.fence, 5, 9), 2),
        # Nothing lies outside a shard that has all hash keys.
        (plain(*outside, hash_key=9), WHOLE, 0),
    ],
)
def test_records_outside_the_shards_range_are_counted(
    put: list[User], source: Source, expected: int
) -> None:
    assert count_outside(put, source) == expected


def test_only_records_of_aggregates_are_counted() -> None:
    records = [Record("1", b"x", outside[0])]
    assert open_records(records, LOWER).outside == 0


# --- steps ---------------------------------------------------------------------------


def parts_of(number: int, count: int, *, last_key: bool = False) -> Record:
    """Return an aggregate of this many user records; its table may come last."""
    parts = PART * count
    body = parts + KEY if last_key else KEY + parts
    return kinesis_record(frame(body), str(number))


@pytest.mark.parametrize("last_key", [False, True])
@pytest.mark.parametrize("count", [1, 9, 10, 11, 49, 50, 51, 200])
def test_a_large_aggregate_is_opened_in_steps(
    monkeypatch: pytest.MonkeyPatch, count: int, last_key: bool
) -> None:
    for module in (aggregation, aggregate_readers):
        monkeypatch.setattr(module, "STEP_RECORDS", 10)
    monkeypatch.setattr(aggregate_readers, "STEP_FIELDS", 10)
    steps = list(open_in_steps([parts_of(7, count, last_key=last_key)], WHOLE))
    found = [record for step in steps for record in step.opened.records]
    assert [record.position for record in found] == [
        Position("7", n) for n in range(count)
    ]
    assert [record.data for record in found] == [b"x"] * count
    assert all(len(step.opened.records) <= 10 for step in steps)
    *others, last = steps
    assert last.opened.last == "7"
    assert (last.done, last.data_bytes) == (1, len(parts_of(7, count).data))
    assert last.held_bytes == 0
    assert all(step.opened.last is None and step.done == 0 for step in others)
    if last_key and count > 10:
        assert max(step.held_bytes for step in others) >= 16 * count


def test_no_user_record_comes_before_the_aggregate_is_known_to_be_valid() -> None:
    body = KEY + PART * 50_000
    for data in (frame(body + b"\x1a"), frame(body)[:-1] + b"!", frame(PART * 50_000)):
        record = kinesis_record(data)
        steps = [s.opened for s in open_in_steps([record], WHOLE)]
        assert [r for step in steps for r in step.records] == [record]
        assert steps[-1].unopened == [record]
        assert steps[-1].last == "495"


def test_steps_end_between_records_and_within_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (aggregation, aggregate_readers):
        monkeypatch.setattr(module, "STEP_RECORDS", 10)
    counts = [3, 3, 3, 25, 0, 9, 9]
    records = [parts_of(n, count) for n, count in enumerate(counts)]
    steps = list(open_in_steps(records, WHOLE))
    working = [step for step in steps if step.opened.records or step.done]
    assert [(len(s.opened.records), s.opened.last, s.done) for s in working] == [
        (9, "2", 3),
        (10, None, 0),
        (10, None, 0),
        (5, "4", 2),
        (9, "5", 1),
        (9, "6", 1),
    ]


def test_a_step_has_limited_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "STEP_BYTES", 100)
    records = [kinesis_record(b"x" * 40, str(n)) for n in range(7)]
    steps = list(open_in_steps(records, WHOLE))
    taken = [(step.done, step.data_bytes) for step in steps]
    assert taken == [(3, 120), (3, 120), (1, 40)]
    [digest, *_] = open_in_steps([parts_of(1, 60)], WHOLE)
    assert digest.opened.records == []
    assert list(open_in_steps([], WHOLE)) == []


def test_a_record_that_must_become_an_object_keeps_its_place() -> None:
    odd = frame(field(0x0A, b"\xff") + PART)
    records = [
        kinesis_record(b"before", "1"),
        kinesis_record(odd, "2"),
        kinesis_record(frame(KEY + PART), "3"),
        kinesis_record(odd[:-1], "4"),
        kinesis_record(b"", "5"),
    ]
    found = open_records(records, WHOLE)
    places = [record.position.text for record in found.records]
    assert places == ["1", "2:0", "3:0", "4", "5"]
    assert found.unopened == records[3:4]


@needs_compiled
def test_the_memory_of_a_page_is_free_when_all_of_it_is_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aggregation, "PACKED_BYTES", 500)
    records = packed_records([parts_of(n, 9) for n in range(40)])
    *others, last = open_in_steps(records, WHOLE)
    assert len(others) > 4
    assert all((step.done, step.data_bytes) == (0, 0) for step in others)
    assert (last.done, last.data_bytes) == (40, data_size(records))
    part = others[0].opened.records
    assert isinstance(part, PageRecords)
    assert len(part._body) < len(records._body) // 3


@needs_compiled
def test_an_aggregate_may_have_several_steps_of_packed_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aggregation, "PACKED_RECORDS", 10)
    records = [kinesis_record(b"", "1"), parts_of(2, 30), parts_of(3, 1)]
    *steps, _ = open_in_steps(packed_records(records), WHOLE)
    found = [(len(step.opened.records), step.opened.last) for step in steps]
    assert found == [(10, None), (10, None), (10, None), (1, "2"), (1, "3")]


@needs_compiled
def test_a_large_aggregate_of_a_page_is_opened_in_steps_of_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aggregation, "PACKED_BYTES", 50)
    records = packed_records([parts_of(1, 1), parts_of(2, 20)])
    first, second, _ = open_in_steps(records, WHOLE)
    assert isinstance(first.opened.records, PageRecords)
    assert len([*second.opened.records]) == 20
    assert isinstance(second.opened.records, list)


@needs_compiled
def test_only_aggregated_records_of_a_page_are_counted() -> None:
    data = frame(message(plain(*outside[:3], inside[0])))
    records = [kinesis_record(b"x", "1"), kinesis_record(data, "2")]
    steps = open_in_steps(packed_records(records), LOWER)
    assert sum(step.opened.outside for step in steps) == 3


@needs_compiled
def test_packed_records_without_aggregates_are_one_step() -> None:
    records = packed_records([kinesis_record(b"x", str(n)) for n in range(3)])
    [step] = open_in_steps(records, WHOLE)
    assert step.opened.records is records
    assert (step.opened.last, step.done, step.data_bytes) == ("2", 3, 3)


def test_records_of_several_shards_are_opened_with_their_own_sources() -> None:
    data = frame(message([ONE, ONE]))
    first, second, third = (kinesis_record(data, number) for number in "123")
    first.source, third.source = WHOLE, WHOLE
    broken = kinesis_record(data[:-1], "4")
    opened, unopened = open_all([first, second, third, broken])
    assert [(r.position.text, r.source) for r in opened] == [
        *(("1:0", WHOLE), ("1:1", WHOLE)),
        *(("2:0", None), ("2:1", None)),
        *(("3:0", WHOLE), ("3:1", WHOLE)),
        ("4", None),
    ]
    assert unopened == [broken]


def test_no_records_are_opened_to_none() -> None:
    assert open_all([]) == ([], [])
