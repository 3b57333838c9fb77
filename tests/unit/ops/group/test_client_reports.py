"""Test what clients report: failures of user code, incidents, and fan-out."""

from __future__ import annotations

from typing import Any

import msgspec

from kinesumer.model.incidents import IncidentKind
from kinesumer.model.rows import Row
from kinesumer.model.streams import FanOutUse
from kinesumer.ops.group.client_reports import (
    LIVE_SECONDS,
    ConsumerUse,
    PollingClient,
    failures_of,
    group_incidents,
    read_live_uses,
    uses_of_stream,
)
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.status import report
from kinesumer.wire.rows import timestamp_text
from tests.support.doctor import ARN, OTHER, member, snapshot

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
    stream = "stream orders"
    assert [text.partition(": ")[0] for text in found] == [stream, "a", stream]
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


# Stream, since, done, calls, failed, letters, skipped, and the last error.
FAILING = "0 820 6 100 94 616 0 PaymentError 996 shardId-3 4959"


def failing(name: str = "a", text: str = FAILING, **more: Any) -> Any:
    return member(name, failures=text, **more)


def explained(*members: Any, now: float | None = 1000.0) -> str:
    found = failures_of(members, ARN)
    assert found is not None
    return found.explain(now)


def test_the_last_error_comes_first_without_data_and_then_how_much_fails() -> None:
    assert explained(failing()) == (
        "last PaymentError at record 4959 of shardId-3, 4.0 s ago: 94 % of 100 calls "
        "fail, 616 dead letters in the last minute (reported by a, for 3 min)"
    )


def test_the_failures_of_several_clients_are_added_up() -> None:
    other = failing("b", "0 900 4 100 6 0 1 KeyError 999 shardId-1 7")
    assert explained(failing(), other) == (
        "last KeyError at record 7 of shardId-1, 1.0 s ago: 50 % of 200 calls fail, "
        "616 dead letters, 1 skipped record in the last minute (reported by a, b, for "
        "3 min)"
    )


def test_an_error_and_an_age_may_be_unknown() -> None:
    assert explained(failing(text="0 900 9 0 0 0 2"), now=None) == (
        "2 skipped records in the last minute (reported by a)"
    )


def test_few_failing_calls_are_not_rounded_to_none() -> None:
    assert "1 % of 9,999 calls" in explained(failing(text="0 900 9999 9999 1 0 0"))


def test_failures_of_other_streams_are_left_out() -> None:
    both = frozenset({ARN, OTHER})
    lines = "0 900 1 1 1 0 0\n1 900 2 2 2 0 0"
    client = failing(text=lines, streams=both)
    for arn, failed in zip((*sorted(both), None), (1, 2, 3), strict=True):
        found = failures_of([client], arn)
        assert found is not None
        assert found.failed_calls == failed
    assert failures_of([member("b")]) is None


def test_status_says_what_fails() -> None:
    fleet = FleetView(snapshot(members=[failing()], read_at=1000.0))
    made = report("app", "table", fleet)
    assert f"stream orders: {explained(failing())}" in made.problems
    assert msgspec.to_builtins(made.streams[0].failures) == {
        "clients": ["a"],
        "since": 820.0,
        "records_done": 6,
        "calls": 100,
        "failed_calls": 94,
        "dead_letters": 616,
        "skipped_records": 0,
        "last_error": {
            "type": "PaymentError",
            "shard_id": "shardId-3",
            "position": "4959",
            "at": 996.0,
        },
        "text": "94 % of 100 calls fail, 616 dead letters in the last minute",
    }
    made = report("app", "table", FleetView(snapshot()))
    assert made.streams[0].failures is None


DENIED = "access denied: kinesis:SubscribeToShard"
PUSHED, POLLING = FanOutUse("billing"), FanOutUse("billing", DENIED)
MEMBERS = [
    member("a", fan_out={ARN: PUSHED}),
    member("b", fan_out={ARN: POLLING}),
    member("c", fan_out={ARN: FanOutUse("audit"), OTHER: PUSHED}),
    member("d", fan_out={ARN: POLLING}),
    member("e"),
]
POLLERS = [PollingClient(one, DENIED) for one in "bd"]
BILLING = ConsumerUse("billing", ["a"], POLLERS)


def test_the_clients_of_each_consumer_are_told_apart_from_those_that_poll() -> None:
    audit = ConsumerUse("audit", ["c"], [])
    assert uses_of_stream(MEMBERS, ARN) == [audit, BILLING]
    assert uses_of_stream(MEMBERS[4:], ARN) == []
    assert [audit.text, BILLING.text] == [
        "fan-out audit (1 client)",
        "fan-out billing (1 client, 2 poll instead)",
    ]


class Table:
    """A state store with the rows of clients of several apps."""

    def __init__(self, *rows: Row) -> None:
        self.rows = list(rows)

    async def scan(self, prefix: str) -> list[Row]:
        return self.rows


def client(app: str, age_seconds: float, **more: Any) -> Row:
    return {
        "pk": f"member#{app}",
        "sk": "c1",
        "session": "s",
        "incarnation": 0,
        "beat": 1,
        "lease_ms": 8000,
        "streams": frozenset({ARN}),
        "fan_out": "0:billing",
        "last_update": timestamp_text(1e9 - age_seconds),
        **more,
    }


async def test_only_live_clients_of_any_app_use_a_consumer() -> None:
    table: Any = Table(
        client("one", 10),
        client("one", 10, fan_out="0:billing access denied"),
        client("two", 10),
        client("dead", 10, dead=True),
        client("crashed", LIVE_SECONDS + 1),
        client("polls", 10, fan_out=""),
        client("unreadable", 10, lease_ms=0),
    )
    uses = await read_live_uses(table, 1e9)
    assert uses[ARN, "billing"] == {"one": 2, "two": 1}
    assert list(uses) == [(ARN, "billing")]
