"""Test what reports say about the incidents that clients have noticed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kinesumer.model.incidents import IncidentKind
from kinesumer.ops.group.client_reports import group_incidents
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.status import report
from tests.support.doctor import ARN, member, snapshot

CLAIMS, CREDENTIALS = IncidentKind.REPEATED_CLAIM, IncidentKind.CREDENTIALS


def texts(*members: Any, now: float | None = 1060.0) -> list[str]:
    """Return the subject and the text of each group of incidents."""
    groups = group_incidents(members)
    return [f"{group.subject}: {group.text(now)}" for group in groups]


def test_an_incident_of_clients_names_the_clients_and_the_last_error_first() -> None:
    members = [
        member(name, incidents=f"credentials {1000 + number} 2 - expired {number}")
        for number, name in enumerate("abcd")
    ]
    assert texts(*members) == [
        "a, b, c and 1 more: expired 3: "
        f"{CREDENTIALS.meaning} (for 60.0 s, noted 8 times)"
    ]


def test_an_incident_of_shards_names_the_shards_and_who_reports_them() -> None:
    lines = "repeated-claim 1000 3 0/shardId-2\nrepeated-claim 1030 3 0/shardId-1"
    about = "shardId-1, shardId-2, reported by a, for 60.0 s, noted 6 times"
    assert texts(member("a", incidents=lines)) == [
        f"stream orders: {CLAIMS.meaning} ({about})"
    ]


def test_the_worst_kinds_come_first_and_a_duration_may_be_unknown() -> None:
    lines = "corrupt-aggregate 1000 3 0\nkms 1000 1 0 disabled\nstalled 1000 1 -"
    found = texts(member("a", incidents=lines), now=None)
    assert [text.partition(": ")[0] for text in found] == [
        "stream orders",
        "a",
        "stream orders",
    ]
    assert found[0] == (
        f"stream orders: disabled: {IncidentKind.KMS.meaning} "
        "(reported by a, noted once)"
    )


def test_status_reports_the_incidents_of_each_client() -> None:
    line = "repeated-claim 1000 3 0/shardId-2 lost"
    fleet = FleetView(snapshot(members=[member("a", incidents=line), member("b")]))
    first, second = report("app", "table", fleet).members
    assert second.incidents == []
    assert msgspec.to_builtins(first.incidents) == [
        {
            "kind": "repeated-claim",
            "stream_arn": ARN,
            "shard_id": "shardId-2",
            "since": 1000.0,
            "count": 3,
            "error": "lost",
            "meaning": CLAIMS.meaning,
            "remedy": CLAIMS.remedy,
        }
    ]


@pytest.mark.parametrize("kind", IncidentKind)
def test_meanings_and_remedies_are_sentences(kind: IncidentKind) -> None:
    for text in kind.about[:2]:
        assert text[0].isupper()
        assert text.endswith(".")
        assert len(text.split()) <= 30
