"""Test that two offsets determine a batch's ranges, and that tasks share them."""

from __future__ import annotations

import json
import pickle
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.errors import CorruptOffsetError
from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS, Shard, ShardKey, Start, Stream
from kinesumer.spark.offsets.model import BEGINNING, END, After, At, End, StreamOffset
from kinesumer.spark.offsets.offset_json import from_json, to_json
from kinesumer.spark.planning.batch_end import readable, still_needed, vanished
from kinesumer.spark.planning.limits import Limits, Sample, Share, admit
from kinesumer.spark.planning.probe import ProbedRecord
from kinesumer.spark.planning.tasks import ShardRange, Task, between, pack

if TYPE_CHECKING:
    from kinesumer.spark.offsets.model import ShardPosition

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


# --- offsets in Spark's log ----------------------------------------------------------


def aws_number(shard: int, taken: int, counter: int) -> str:
    """Return a sequence number in the format of AWS."""
    created = 0x5BF4E5C2
    hexa = f"2{created:09x}{shard % 16:x}{counter:016x}00{taken:09x}{shard:08x}2"
    return str(int(hexa, 16))


def test_the_numbers_of_these_tests_are_like_those_of_aws() -> None:
    known = "49590338271490256608559692538361571095921575989136588898"
    assert aws_number(6, 0x5C181EEA, 0x67648A17) == known


@pytest.mark.parametrize(
    ("prefix", "quiet"), [(True, None), (False, None), (False, 0), (False, 3_600)]
)
def test_the_offset_of_1000_shards_is_small(prefix: bool, quiet: int | None) -> None:
    """A new query's offset also contains the first record of each shard."""
    chance = random.Random(15)

    def number(shard: int, arrived: float) -> str:
        if prefix:
            return f"{4959033827149025660855 * 10**34 + chance.randrange(10**34)}"
        return aws_number(shard, int(arrived), chance.randrange(1 << 40))

    firsts: dict[str, ShardPosition] = {}
    lasts: dict[str, ShardPosition] = {}
    for shard in range(2_000, 3_000):
        shard_id = f"shardId-{shard:012}"
        begin, end = (1_763_805_000 + 3_600 * chance.random() for _ in range(2))
        lasts[shard_id] = After(Position(number(shard, end)), end)
        if quiet is not None:
            begin -= quiet * chance.random()
            firsts[shard_id] = At(number(shard, begin), begin)
    text = json.dumps(to_json(offset(lasts, origin=firsts)))
    assert len(text) <= 30_000
    assert json.dumps(to_json(from_json(json.loads(text)))) == text


def test_an_offset_of_few_shards_is_written_in_full() -> None:
    number = "49590338271490256608559692538361571095921575989136588898"
    given = offset({"shardId-000000000006": After(Position(number), 1.9996)})
    assert to_json(given) == {
        "streams": {
            ARN: {
                "created": 7.0,
                "shards": {"shardId-000000000006": {"after": number, "seen": 1.999}},
            }
        },
        "version": 2,
    }


def test_an_offset_of_many_shards_is_lists_of_differences() -> None:
    number = 49590338271490256608559692538361571095921575989136588898
    places: dict[str, ShardPosition] = {
        f"s-{i:03}": After(Position("7"), 2.0) for i in range(20)
    }
    places |= {
        "s-020": BEGINNING,
        "s-021": After(Position("6"), 2.001),
        "s-022": At("38", 2.0),
        "s-023": After(Position("038"), 1.0),
        "s-030": After(Position("38", 5), 1.0),
        "s-031": End(1.064),
        "s-032": END,
        "s-033": AT,
        "s-034": Start(type="AT_TIMESTAMP", timestamp=5.50001),
        "s-035": After(Position(str(number)), 5.5),
        "s-036": After(Position(str(number ^ 7 << 144 ^ 7 << 4 ^ 1 << 36)), 5.5),
        "t": After(Position("3"), 5.5),
    }
    made = to_json(offset(places))["streams"][ARN]["shards"]
    assert made["s-000"] == [
        {"after": "7", "seen": 2.0},
        "= = = = = = = = = = = = = = = = = = =",
        {"start": "TRIM_HORIZON"},
        "1:1 @W:-1",
        {"after": "038", "seen": 1.0},
        "_6 ::5 !10 !-Ge >1Ly",
        {"start": "AT_TIMESTAMP", "time": 5.50001},
        made["s-000"][-1],
    ]
    assert made["s-000"][-1].endswith(": 1.")
    assert [*made] == ["s-000", "t"]
    assert from_json(to_json(offset(places))) == offset(places)


positions_at = st.builds(
    Position,
    st.integers(0, 10**129 - 1).map(str)
    | st.from_regex(r"[0-9]{1,129}", fullmatch=True),
    st.none() | st.integers(0, 5),
)
times = st.integers(0, 4 * 10**12).map(lambda millis: millis / 1000)
all_places = (
    st.builds(After, positions_at, times)
    | st.builds(At, st.integers(0, 10**129 - 1).map(str), times)
    | st.builds(End, times)
    | st.builds(
        lambda t: Start(type="AT_TIMESTAMP", timestamp=t), times | st.floats(0, 4e9)
    )
    | st.sampled_from([BEGINNING, END])
)
ids = st.integers(0, 60).map(lambda n: f"shardId-{n:012}") | st.from_regex(
    r"[a-c][0-9]{0,20}", fullmatch=True
)


@settings(max_examples=settings().max_examples // 2)
@given(
    st.dictionaries(ids, all_places, min_size=1, max_size=30),
    st.dictionaries(ids, all_places, max_size=2),
)
def test_any_offset_survives_sparks_log(
    places: dict[str, ShardPosition], origin: dict[str, ShardPosition]
) -> None:
    value = to_json(offset(places, origin=origin, anchored_at=4.5))
    found = from_json(json.loads(json.dumps(value)))
    assert found == offset(places, origin=origin, anchored_at=4.5)
    ends = {key: place.seen for key, place in places.items() if isinstance(place, End)}
    shards = found[ARN].shards
    assert {i: p.seen for i, p in shards.items() if isinstance(p, End)} == ends
    again = offset(dict(reversed(places.items())), origin=origin, anchored_at=4.5)
    assert json.dumps(to_json(again)) == json.dumps(value)


@settings(max_examples=settings().max_examples // 2)
@given(
    st.dictionaries(
        st.integers(0, 40),
        st.tuples(
            st.sampled_from("@@@aaa!"),
            st.integers(0, (1 << 36) - 1) | st.integers(1_763_805_000, 1_763_808_600),
            st.integers(0, 100) | st.integers(0, (1 << 64) - 1),
            times | st.integers(0, 10**6).map(lambda m: 1_763_805_000 + m / 1_000),
        ),
        min_size=17,
        max_size=30,
    )
)
def test_places_by_numbers_of_aws_survive_sparks_log(
    made: dict[int, tuple[str, int, int, float]],
) -> None:
    places: dict[str, ShardPosition] = {}
    for shard, (kind, taken, counter, time) in made.items():
        number = aws_number(shard, taken, counter)
        kinds: dict[str, ShardPosition] = {
            "@": At(number, time),
            "a": After(Position(number), time),
            "!": End(time),
        }
        places[f"shardId-{shard:012}"] = kinds[kind]
    value = json.loads(json.dumps(to_json(offset(places))))
    assert from_json(value) == offset(places)


def test_places_that_follow_each_other_are_a_table() -> None:
    second = 1_763_805_000
    places: dict[str, ShardPosition] = {
        f"shardId-{shard:012}": After(
            Position(aws_number(shard, second + shard, 64 * shard)),
            second + shard * 1.005,
        )
        for shard in range(20)
    }
    made = to_json(offset(places))["streams"][ARN]["shards"]
    [[_, table]] = made.values()
    # From shard to shard, the second in the sequence number grows by one, and the time
    # of arrival by 5 ms more than that.
    assert table.startswith("#2,1,1:101A303A101A707A")
    assert from_json(to_json(offset(places))) == offset(places)


@pytest.mark.parametrize(
    "words", ["#1,1,1:00", "#0,0,0:", "#1,1,1:000", "7:1 #1,1,1:0z", "#A,1,1:000"]
)
def test_a_broken_table_is_refused(words: str) -> None:
    first = {"start": "TRIM_HORIZON"}
    value = {"created": 1.0, "shards": {"shardId-000": [first, words]}}
    with pytest.raises(CorruptOffsetError):
        from_json({"version": 2, "streams": {ARN: value}})


# --- packing -------------------------------------------------------------------------


def part(number: int, size: int) -> ShardRange:
    return ShardRange(ARN, f"shardId-{number:012}", BEGINNING, END, 86_400.0, size)


@given(
    st.lists(st.integers(0, 50_000_000), min_size=1, max_size=60), st.integers(1, 20)
)
def test_tasks_hold_all_ranges_in_order(sizes: list[int], most: int) -> None:
    ranges = [part(number, size) for number, size in enumerate(sizes)]
    tasks = pack(ranges, most)
    assert [item for task in tasks for item in task] == ranges
    assert 1 <= len(tasks) <= most
    share = sum(sizes) / len(tasks)
    assert all(
        sum(item.estimated_bytes for item in task) <= 3 * share + max(sizes) + 1
        for task in tasks
    )


def test_tasks_are_even_by_bytes_and_few_for_little() -> None:
    even = pack([part(i, 10_000_000) for i in range(8)], 4)
    assert [len(task) for task in even] == [2, 2, 2, 2]
    skewed = pack([part(0, 90_000_000), *(part(i, 1_000_000) for i in range(1, 31))], 4)
    assert len(skewed[0]) == 1
    assert len(pack([part(i, 1_000) for i in range(100)], 4)) == 1
    assert pack([], 4) == []


def test_a_task_travels_to_executors() -> None:
    task = Task((Stream(ARN),), (part(0, 1),))
    assert pickle.loads(pickle.dumps(task)).ranges == task.ranges


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


# --- limits --------------------------------------------------------------------------

A, B, C = (ShardKey(ARN, shard_id) for shard_id in "abc")


def found(number: int, arrived_at: float, size: int = 100) -> ProbedRecord:
    return ProbedRecord(Position(str(number)), arrived_at, size)


def sample(*arrivals: float, whole: bool = True, size: int = 100) -> Sample:
    records = [found(i, arrived, size) for i, arrived in enumerate(arrivals)]
    return Sample(records, whole)


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
        B: sample(2.5, 2.6, 9.0, whole=False).up_to(6.0),
        C: sample(7.0).up_to(6.0),
    }
    assert admit(samples, Limits(), 6.0) == {A: Share(3, 6.0), B: Share(2), C: Share(0)}
    assert admit(samples, Limits(rows=2), 6.0)[A] == Share(2)
