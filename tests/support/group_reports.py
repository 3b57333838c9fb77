"""Provide a group with each state that a report shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kinesumer.model.positions import Position
from kinesumer.ops.group.lag import Lags
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.status import GroupReport, report
from tests.support.doctor import ARN, HALF, member, row, snapshot

SHARDS = [
    row(0, position=Position("495", 3)),
    row(2, owner=""),
    row(4, owner="gone"),
    row(6, owner="", ready=False, parents=frozenset({"shardId-0"})),
    row(8, owner="", ended=True),
    row(10, owner="b"),
]


A = member(
    "a",
    last=HALF - 1,
    incidents="stalled 1000 1 - user code",
    failures="0 900 6 100 94 6 0 PaymentError 996 shardId-3 4959",
)


SNAPSHOT = snapshot(
    SHARDS,
    [
        A,
        member("b", first=HALF, index=1, state="degraded"),
        member("c", index=None, range=None),
        member("gone", dead=True),
    ],
)


LAGS = Lags({SHARDS[0].key: 1500, SHARDS[1].key: 20}, {}, {ARN: 48})


HEARTBEAT_AGES = {"session of a": 0.5, "session of b": 7.0}


def status(lags: Lags = LAGS, **changes: Any) -> GroupReport:
    """Return the report of ``SNAPSHOT``, some fields of which are replaced."""
    fleet = FleetView(replace(SNAPSHOT, **changes), HEARTBEAT_AGES, lags)
    return report("app", "table", fleet)
