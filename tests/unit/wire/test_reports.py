"""Test the texts of a member's reports, and that its row stays small."""

from __future__ import annotations

from collections.abc import Callable, Sized

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.incidents import Incident, IncidentKind
from kinesumer.model.reports import (
    LastError,
    Load,
    LoadReport,
    Outcomes,
    StreamFailures,
)
from kinesumer.model.rows import Row
from kinesumer.model.streams import HASH_KEYS, ShardKey
from kinesumer.wire.reports import (
    KEY_UNIT,
    MAX_ENTRIES,
    MAX_FAILURE_BYTES,
    MAX_INCIDENT_BYTES,
    MAX_READ_LETTERS,
    REPORTS,
    SLACK_BYTES,
    WRITE_UNIT_BYTES,
    failures_text,
    incidents_text,
    load_text,
    max_entries,
    read_failures,
    read_incidents,
    read_loads,
    room_bytes,
    row_bytes,
)
from tests.support.shares import stored_loads

A, B = (f"arn:aws:kinesis:us-east-1:123456789012:stream/{name}" for name in "ab")
BOTH = frozenset({A, B})
rates = st.just(0.0) | st.floats(1e-3, 1e7)
loads = st.builds(Load, rates, rates, rates)


def shard(arn: str, number: int, count: int) -> tuple[ShardKey, int]:
    """Return the key and the starting hash key of one of a stream's equal shards."""
    return ShardKey(arn, f"shardId-{number:012}"), number * HASH_KEYS // count


def check(found: Load, load: Load) -> None:
    """Check that rates were read as they were written, up to their scale's steps."""
    for rate, written, error in zip(found, load, (0.1, 0.1, 0.002), strict=True):
        assert rate == pytest.approx(written, rel=error, abs=30)
    if load.handler_seconds_per_second > 1e-5:
        expected = load.handler_seconds_per_second
        assert found[2] == pytest.approx(expected, rel=0.002)


@given(st.lists(loads, min_size=1, max_size=20), st.sampled_from([1, 2, 94, 95, 8836]))
def test_reports_are_read_as_they_were_written(given: list[Load], last: int) -> None:
    bounded = [Load(*map(min, load, (2e7, 2e4, 900.0))) for load in given]
    written = [
        LoadReport(A, n * HASH_KEYS // len(bounded), 1, load)
        for n, load in enumerate(bounded)
    ]
    written.append(LoadReport(B, 0, last, bounded[0]))
    found = read_loads(load_text(written, BOTH), BOTH)
    for one, report in zip(found, written, strict=True):
        assert (one.stream_arn, one.shards) == (report.stream_arn, report.shards)
        assert report.first_hash - KEY_UNIT < one.first_hash <= report.first_hash
        check(one.load, report.load)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (Load(), Load()),
        (Load(29.0, 0.029, 9e-7), Load()),
        (Load(30.0, 0.03, 1e-6), Load(30.0, 0.03, 1e-6)),
        (Load(1e99, 1e99, 1e99), Load(3e7, 3e4, 1e3)),
    ],
)
def test_rates_have_a_least_and_a_greatest_value(load: Load, expected: Load) -> None:
    [found] = read_loads(load_text([LoadReport(A, 0, 1, load)], BOTH), BOTH)
    assert found.load == pytest.approx(expected)


@pytest.mark.parametrize(
    "text",
    [
        load_text([], BOTH),
        "0 0:1|",
        "0 0:1|AAA!!!",
        "2 0:1|AAA!!!!",
        "1 0:1|AAA!!!!!",
        "0 0:1|AAA!!!!!",
        "0 0:1|AAA!!!\x7f",
        "0 0:1|A A!!!!",
        "3 0:1|AAA!!!!",
        "0 2:1|AAA!!!!",
        "0|AAA!!!!",
        "0 0:1 AAA!!!!",
        "x 0:1|AAA!!!!",
        "٣ 0:1|AAA!!!!",
    ],
)
def test_an_invalid_text_reports_nothing(text: str) -> None:
    assert read_loads(text, BOTH) == []
    assert read_loads("0 0:1|AAA!!!!", BOTH) == [LoadReport(A, 0, 1, Load())]


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    read_loads(text, BOTH)
    read_loads(f"0 0:1|{text}", BOTH)
    read_loads(f"2 0:1|{text}", BOTH)


@given(st.integers(1, 700), st.integers(1, 3), st.integers(0, 700))
def test_the_entries_that_fit_take_no_more_room(
    shards: int, streams: int, room: int
) -> None:
    arns = [f"{A}{number}" for number in range(streams)]
    loads = {
        shard(arn, number, shards): Load(1.0 + number % 7, 1.0, 0.1)
        for arn in arns
        for number in range(shards)
    }
    entries = max_entries(room, streams, len(loads))
    text = stored_loads(loads, frozenset(arns), entries)
    found = read_loads(text, frozenset(arns))
    assert sum(one.shards for one in found) == len(loads)
    assert len(text) <= room or entries < streams


def test_a_row_of_one_stream_has_room_for_sixty_shards() -> None:
    assert max_entries(600, 1, 60) == MAX_ENTRIES == 60
    assert max_entries(600, 1, 61) == 60
    assert max_entries(100, 1, 13) == 13
    assert max_entries(100, 1, 14) == 10
    assert max_entries(0, 1, 1) == 0


SHARD = "shardId-000000000003"
CREDENTIALS, CLAIMS = IncidentKind.CREDENTIALS, IncidentKind.REPEATED_CLAIM
places = st.sampled_from([("", ""), (A, ""), (B, SHARD)])
incidents = st.builds(
    lambda kind, place, since, count, error: Incident(
        kind, place[0], place[1], float(since), count, " ".join(error.split())
    ),
    st.sampled_from(IncidentKind),
    places,
    st.integers(0, 9_999_999_999),
    st.integers(1, 10**12 - 1),
    st.text(max_size=200),
)


def test_incidents_are_read_as_they_were_written() -> None:
    found = [
        Incident(CREDENTIALS, since=1_700_000_000.0, count=2, error="token expired"),
        Incident(CLAIMS, B, SHARD, 1_700_000_001.0, 12),
        Incident(IncidentKind.KMS, A, "", 1_700_000_002.0, 3, "key is disabled: 1 -"),
    ]
    text = incidents_text(found, BOTH, MAX_INCIDENT_BYTES)
    assert text == (
        "credentials 1700000000 2 - token expired\n"
        f"repeated-claim 1700000001 12 1/{SHARD}\n"
        "kms 1700000002 3 0 key is disabled: 1 -"
    )
    assert read_incidents(text, BOTH) == found


@given(st.lists(incidents, max_size=20))
def test_the_text_is_short_and_names_what_fits(found: list[Incident]) -> None:
    text = incidents_text(found, BOTH, MAX_INCIDENT_BYTES)
    assert len(text.encode()) <= MAX_INCIDENT_BYTES
    read = read_incidents(text, BOTH)
    assert bool(read) is bool(found)
    named = {incident[:5] for incident in found}
    assert all(incident[:5] in named for incident in read)


@given(st.lists(incidents, min_size=1, max_size=20), st.integers(-9, 500))
def test_without_room_one_incident_is_written_without_its_error(
    found: list[Incident], room: int
) -> None:
    text = incidents_text(found, BOTH, room)
    [first, *_] = read_incidents(text, BOTH)
    assert len(text.encode()) <= max(room, len(incidents_text(found, BOTH, 0)))
    assert first[:5] == found[0][:5]


def test_many_incidents_of_one_kind_do_not_hide_another() -> None:
    many = [Incident(CLAIMS, A, f"shardId-{n:012}", 1.7e9) for n in range(50)]
    last = Incident(IncidentKind.TRIMMED_POSITION, B, SHARD, 1.7e9)
    read = read_incidents(incidents_text([*many, last], BOTH, MAX_INCIDENT_BYTES), BOTH)
    assert read[:2] == [many[0], last]
    assert len(read) > 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "later-kind 1 1 -",
        "kms 1 1 7 of a stream that is not requested",
        "kms 1 1 0/ no shard",
        "kms 1 1 -/shardId-1",
        "kms x 1 -",
        "kms 99999999999 1 -",
        "kms 1 1 ²",
        "KMS 1 1 -",
    ],
)
def test_incidents_that_cannot_be_read_are_ignored(text: str) -> None:
    assert read_incidents(text, BOTH) == []
    assert len(read_incidents(f"{text}\nkms 1 1 0", BOTH)) == 1


POSITION = "49590338271490256608559692538361571095921575989136588898:12"
counts = st.integers(0, 10**12 - 1)
seconds = st.integers(0, 9_999_999_999).map(float)
errors = st.builds(
    LastError,
    st.from_regex(r"\A[A-Za-z_]\w{0,60}\Z"),
    st.just(SHARD),
    st.just(POSITION),
    seconds,
)
failures = st.builds(
    StreamFailures,
    st.sampled_from([A, B]),
    seconds,
    st.builds(Outcomes, counts, counts, counts, counts, counts),
    st.none() | errors,
)


def test_failures_are_read_as_they_were_written() -> None:
    error = LastError("PaymentError", SHARD, POSITION, 1_700_000_009.0)
    found = [
        StreamFailures(B, 1_700_000_000.0, Outcomes(6, 100, 94, 616, 2), error),
        StreamFailures(A, 1_700_000_001.0, Outcomes(9, 0, 0, 0, 1)),
    ]
    text = failures_text(found, BOTH, MAX_FAILURE_BYTES)
    assert text == (
        "1 1700000000 6 100 94 616 2 PaymentError 1700000009 "
        f"{SHARD} {POSITION}\n0 1700000001 9 0 0 0 1"
    )
    assert read_failures(text, BOTH) == found


@given(st.lists(failures, max_size=9), st.integers(-50, 500))
def test_the_text_fits_apart_from_the_counts_of_one_stream(
    found: list[StreamFailures], room: int
) -> None:
    text = failures_text(found, BOTH, room)
    read = read_failures(text, BOTH)
    assert len(text) <= max(min(room, MAX_FAILURE_BYTES), 0) or len(read) == 1
    assert bool(read) is bool(found)
    for one, written in zip(read, found, strict=False):
        assert one[:3] == written[:3]


def test_an_error_is_left_out_if_it_does_not_fit() -> None:
    error = LastError("PaymentError", SHARD, POSITION, 1.0)
    one = StreamFailures(A, 1.0, Outcomes(1, 1, 1), error)
    assert failures_text([one, one], BOTH, 0) == "0 1 1 1 1 0 0"
    assert failures_text([one, one], BOTH, 30) == "0 1 1 1 1 0 0\n0 1 1 1 1 0 0"


def test_a_stream_that_the_member_does_not_request_is_left_out() -> None:
    assert (
        incidents_text([Incident(CLAIMS, A, SHARD)], frozenset({B}), MAX_INCIDENT_BYTES)
        == ""
    )
    assert failures_text([StreamFailures(A, 1.0, Outcomes())], frozenset({B}), 99) == ""


def test_the_name_of_a_class_may_have_any_letters() -> None:
    error = LastError("Fehler ü" + 99 * "x", SHARD, "1", 1.0)
    text = failures_text(
        [StreamFailures(A, 1.0, Outcomes(), error)], BOTH, MAX_FAILURE_BYTES
    )
    [read] = read_failures(text, BOTH)
    assert read.error is not None
    assert read.error.type == "Fehler??" + 40 * "x"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0 1 1 1 1 0",
        "0 1 1 1 1 0 0 0",
        "7 1 1 1 1 0 0",
        "0 1 -1 1 1 0 0",
        "0 99999999999 1 1 1 0 0",
        "0 1 1 1 1 0 0 Error 1 shard",
        "0 1 1 1 1 0 0 Error 1 a/b 1",
        "² 1 1 1 1 0 0",
    ],
)
def test_failures_that_cannot_be_read_are_ignored(text: str) -> None:
    assert read_failures(text, BOTH) == []
    assert len(read_failures(f"{text}\n0 1 1 1 1 0 0", BOTH)) == 1


def test_only_the_beginning_of_hostile_reports_is_read() -> None:
    lines: dict[str, Callable[[str, frozenset[str]], Sized]] = {
        "kms 1 1 -\n": read_incidents,
        "0 1 1 1 1 0 0\n": read_failures,
    }
    for line, read in lines.items():
        assert len(read(40_000 * line, BOTH)) == MAX_READ_LETTERS // len(line)
    [one] = read_incidents("kms 1 1 - " + 400_000 * "x", BOTH)
    assert len(one.error) < MAX_READ_LETTERS


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("abc", 3),
        ("ü", 2),
        (True, 1),
        (0, 2),
        (-12, 2),
        (123, 3),
        (frozenset({"ab", "ü"}), 4),
    ],
)
def test_a_row_has_the_bytes_of_its_names_and_values(
    value: str | int | frozenset[str], size: int
) -> None:
    assert row_bytes({"name": value}) == 4 + size


@pytest.mark.parametrize("size", [100, 800, 1200, 5000])
def test_reports_that_fit_cost_no_further_unit(size: int) -> None:
    row: Row = {"streams": size * "x"}
    room = room_bytes(row)
    units = -(-row_bytes(row) // WRITE_UNIT_BYTES)
    full = row | dict.fromkeys(REPORTS, "") | {"load": room * "y"}
    assert row_bytes(full) + SLACK_BYTES == units * WRITE_UNIT_BYTES
    assert room_bytes(full) == room


@pytest.mark.parametrize("free", [0, 1, SLACK_BYTES])
def test_a_full_unit_has_no_room(free: int) -> None:
    assert room_bytes({"streams": (WRITE_UNIT_BYTES - 7 - free) * "x"}) == 0
