"""Test what is said of clients that read by fan-out, or poll instead."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kinesumer.aws.stream_consumers import StreamConsumer
from kinesumer.model.stream_consumers import FanOutUse
from kinesumer.ops.exporter.metrics import AppMetrics, AppReading, Scale, build_metrics
from kinesumer.ops.group.client_reports import (
    LIVE_SECONDS,
    ConsumerUse,
    LiveUses,
    PollingClient,
    read_live_uses,
    uses_of_stream,
)
from kinesumer.ops.group.doctor.streams import (
    ConsumerObservation,
    full_streams,
    unused_consumers,
)
from kinesumer.ops.group.lag import NO_LAGS
from kinesumer.ops.group.observation import observe
from kinesumer.ops.group.problems import Severity
from kinesumer.ops.group.status import report
from kinesumer.wire.rows import timestamp_text
from tests.support.doctor import ARN, OTHER, check_finding, member, snapshot

if TYPE_CHECKING:
    from kinesumer.model.rows import Row

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
FLEET = snapshot(members=MEMBERS)
OBSERVATION = observe(None, FLEET, NO_LAGS, 0.0)
REPORT = report("app", "table", OBSERVATION)
PROBLEM = f"b, d poll instead of fan-out billing: {DENIED}"


def test_the_clients_of_each_consumer_are_told_apart_from_those_that_poll() -> None:
    audit = ConsumerUse("audit", ["c"], [])
    assert uses_of_stream(MEMBERS, ARN) == [audit, BILLING]
    assert uses_of_stream(MEMBERS[4:], ARN) == []
    assert [audit.text, BILLING.text] == [
        "fan-out audit (1 client)",
        "fan-out billing (1 client, 2 poll instead)",
    ]


def test_status_shows_who_polls_instead_and_why() -> None:
    [stream] = REPORT.streams
    assert stream.fan_out[1] == BILLING
    assert REPORT.problems == [f"stream orders: {PROBLEM}"]


def test_metrics_count_the_clients_of_each_consumer() -> None:
    reading = AppReading(REPORT, OBSERVATION, False, 0.0, 0.0, Scale())
    metrics = {
        (sample.name, sample.labels["consumer"]): sample.value
        for family in build_metrics([AppMetrics("app", 1, 0, reading)])
        for sample in family.samples
        if "consumer" in sample.labels
    }
    name = "kinesumer_group_fan_out"
    assert metrics == {
        (f"{name}_clients", "audit"): 1,
        (f"{name}_polling_clients", "audit"): 0,
        (f"{name}_clients", "billing"): 1,
        (f"{name}_polling_clients", "billing"): 2,
    }


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
    assert uses.apps(ARN, "billing") == {"one": 2, "two": 1}
    assert not uses.apps(OTHER, "billing") and not uses.apps(ARN, "audit")


def test_the_doctor_names_streams_that_have_no_place_for_another_app() -> None:
    def observed(count: int) -> ConsumerObservation:
        registered = [StreamConsumer(f"c{n}", "", "ACTIVE", 1.0) for n in range(count)]
        return ConsumerObservation({ARN: registered}, LiveUses({}), "table")

    assert not [*full_streams(observed(17))]
    expected = "18 stream consumers are registered: AWS permits 20 for a stream, or 50"
    check_finding(full_streams(observed(18)), Severity.NOTE, expected)


def test_the_doctor_names_consumers_that_nobody_uses() -> None:
    registered = [
        StreamConsumer(name, f"{ARN}/consumer/{name}:1", "ACTIVE", 1.0)
        for name in ("billing", "old")
    ]
    uses = LiveUses({(ARN, "billing"): Counter({"one": 2})})
    observed = ConsumerObservation({ARN: registered, OTHER: []}, uses, "table")
    expected = "stream consumer old: AWS bills"
    check_finding(unused_consumers(observed), Severity.NOTE, expected)
    command = "kinesumer fan-out deregister orders old"
    check_finding(unused_consumers(observed), Severity.NOTE, command)
