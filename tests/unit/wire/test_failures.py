"""Test the text by which members report failures, and that it stays short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.reports import LastError, Outcomes, StreamFailures
from kinesumer.wire.failures import MAX_BYTES, failures_text, read_failures
from kinesumer.wire.fields import MAX_READ_LETTERS

A, B = (f"arn:aws:kinesis:us-east-1:123456789012:stream/{name}" for name in "ab")
BOTH = frozenset({A, B})
SHARD = "shardId-000000000003"
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
    text = failures_text(found, BOTH, MAX_BYTES)
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
    assert len(text) <= max(min(room, MAX_BYTES), 0) or len(read) == 1
    assert bool(read) is bool(found)
    for one, written in zip(read, found, strict=False):
        assert one[:3] == written[:3]


def test_an_error_is_left_out_if_it_does_not_fit() -> None:
    error = LastError("PaymentError", SHARD, POSITION, 1.0)
    one = StreamFailures(A, 1.0, Outcomes(1, 1, 1), error)
    assert failures_text([one, one], BOTH, 0) == "0 1 1 1 1 0 0"
    assert failures_text([one, one], BOTH, 30) == "0 1 1 1 1 0 0\n0 1 1 1 1 0 0"


def test_a_stream_that_the_member_does_not_request_is_left_out() -> None:
    assert failures_text([StreamFailures(A, 1.0, Outcomes())], frozenset({B}), 99) == ""


def test_the_name_of_a_class_may_have_any_letters() -> None:
    error = LastError("Fehler ü" + 99 * "x", SHARD, "1", 1.0)
    text = failures_text([StreamFailures(A, 1.0, Outcomes(), error)], BOTH, MAX_BYTES)
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
def test_lines_that_cannot_be_read_are_ignored(text: str) -> None:
    assert read_failures(text, BOTH) == []
    assert len(read_failures(f"{text}\n0 1 1 1 1 0 0", BOTH)) == 1


def test_only_the_beginning_of_a_hostile_text_is_read() -> None:
    line = "0 1 1 1 1 0 0\n"
    found = read_failures(40_000 * line, BOTH)
    assert len(found) == MAX_READ_LETTERS // len(line)
