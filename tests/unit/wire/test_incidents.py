"""Test the text by which members report incidents, and that it stays short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.incidents import Incident, IncidentKind
from kinesumer.wire.fields import MAX_READ_LETTERS
from kinesumer.wire.incidents import MAX_BYTES, incidents_text, read_incidents

A, B = (f"arn:aws:kinesis:us-east-1:123456789012:stream/{name}" for name in "ab")
BOTH = frozenset({A, B})
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
    text = incidents_text(found, BOTH, MAX_BYTES)
    assert text == (
        "credentials 1700000000 2 - token expired\n"
        f"repeated-claim 1700000001 12 1/{SHARD}\n"
        "kms 1700000002 3 0 key is disabled: 1 -"
    )
    assert read_incidents(text, BOTH) == found


@given(st.lists(incidents, max_size=20))
def test_the_text_is_short_and_names_what_fits(found: list[Incident]) -> None:
    text = incidents_text(found, BOTH, MAX_BYTES)
    assert len(text.encode()) <= MAX_BYTES
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
    read = read_incidents(incidents_text([*many, last], BOTH, MAX_BYTES), BOTH)
    assert read[:2] == [many[0], last]
    assert len(read) > 2


def test_a_stream_that_the_member_does_not_request_is_left_out() -> None:
    assert incidents_text([Incident(CLAIMS, A, SHARD)], frozenset({B}), MAX_BYTES) == ""


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
def test_lines_that_cannot_be_read_are_ignored(text: str) -> None:
    assert read_incidents(text, BOTH) == []
    assert len(read_incidents(f"{text}\nkms 1 1 0", BOTH)) == 1


def test_only_the_beginning_of_a_hostile_text_is_read() -> None:
    line = "kms 1 1 -\n"
    found = read_incidents(40_000 * line, BOTH)
    assert len(found) == MAX_READ_LETTERS // len(line)
    [one] = read_incidents("kms 1 1 - " + 400_000 * "x", BOTH)
    assert len(one.error) < MAX_READ_LETTERS
