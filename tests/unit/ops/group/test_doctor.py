"""Test the findings of each check, and conditions that aren't findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kinesumer.aws.account import AccountLimits
from kinesumer.aws.stream_consumers import StreamConsumer
from kinesumer.model.positions import Position
from kinesumer.model.rows import QUERY, GroupRow, LeaderRow, MemberRow, ShardRow
from kinesumer.model.streams import HASH_KEYS, Shard, Start
from kinesumer.ops.group import verify
from kinesumer.ops.group.doctor import APP_CHECK_FUNCTIONS
from kinesumer.ops.group.doctor.members import (
    member_problems,
    operator_pauses,
    split_fleet,
    waiting_plans,
)
from kinesumer.ops.group.doctor.observation import AppObservation
from kinesumer.ops.group.doctor.ownership import (
    holes,
    orphan_shards,
    repeated_claims,
    stuck_hand_overs,
    uncovered_hash_keys,
)
from kinesumer.ops.group.doctor.streams import (
    ConsumerObservation,
    expiring_records,
    full_streams,
    growing_lags,
    hot_shards,
    idle_clients,
    invalid_positions,
    shard_quota,
    throttled_shards,
    unused_consumers,
)
from kinesumer.ops.group.problems import Finding, Severity, worst
from kinesumer.ops.group.shard_reads import ArrivalSample, LagSample
from kinesumer.ops.group.snapshot import Snapshot
from tests.support.doctor import (
    ARN,
    HALF,
    KEYS,
    OTHER,
    app,
    check_finding,
    lag,
    member,
    row,
    snapshot,
    stream,
)

Check = Callable[["AppObservation"], Iterable[Finding]]
NOTE, WARNING, CRITICAL = Severity
MOVED = Start.TRIM_HORIZON
HOUR = 3_600_000


def fleet(*members: MemberRow, **more: Any) -> AppObservation:
    return app(snapshot(members=members), **more)


def rows(*rows: ShardRow, **more: Any) -> AppObservation:
    return app(snapshot(rows), **more)


def group(**fields: Any) -> Snapshot:
    return snapshot(group=GroupRow("id", **fields))


def led(epoch: int) -> Snapshot:
    return snapshot(leader=LeaderRow("session of a", "a", epoch))


DEAD, DRAINED = member("a", dead=True), member("a", drained=True)
A, B, C = (member(name) for name in "abc")
AGES = {"session of a": 5.0, "session of b": 0.5}
SPARK = member("query", kind=QUERY)
B_APART = member("b", streams=frozenset({OTHER}))
BOTH = member("c", streams=frozenset({ARN, OTHER}))
NO_STREAMS = member("a", streams=frozenset())
AT_LIMIT = member("a", max_shards=1)
ONCE = snapshot(members=[member("a", incarnation=1, session="another")])
OFTEN = snapshot(members=[member("a", incarnation=5, session="another")])
EMPTY = app(snapshot(members=[DEAD], streams=[], shards={}))
LEADERLESS = snapshot(leader=None)
STREAM = snapshot().streams[0]
PAUSED_STREAM = app(snapshot(streams=[STREAM._replace(paused=True)]))
PAUSED_ROWS = rows(row(0, paused=True), row(1, ended=True, paused=True))

LEFT, RIGHT = member("a", 0, HALF - 1), member("b", HALF, HASH_KEYS - 1)
HALF_FULL = snapshot([row(0), row(1, owner="")], [LEFT._replace(max_shards=1)])
HALF_ROWS, ENDED_ROW = snapshot([row(0)]), row(0, ended=True)
HALF_PLAN, TWO_PLANS = snapshot(members=[LEFT]), snapshot(members=[A, RIGHT])
CUT = stream(listing=[Shard("shardId-0", 0, HALF - 1)])
UNLISTED = snapshot([row(0)], streams=[STREAM._replace(baseline=False)])
CHILDREN = [
    Shard("shardId-1", HALF, HASH_KEYS - 1),
    Shard("shardId-2", 0, 9, ("shardId-0",)),
    Shard("shardId-3", 10, HALF - 1, ("shardId-0",)),
]
SPLIT = stream(listing=[Shard("shardId-0", 0, HALF - 1, (), "9"), *CHILDREN])
PARENT_ENDED = snapshot([ENDED_ROW, row(1)])
FREE = [row(0, owner=""), row(1)]
UNOWNED = snapshot(FREE)
ORPHANED = rows(row(0, owner="gone"), row(1))
WAITING = row(1, owner="", ready=False, parents=frozenset({"shardId-0"}))
LATE = snapshot([ENDED_ROW, WAITING])
MOVING = snapshot([row(0), row(1)], [LEFT, RIGHT])
ARRIVED = snapshot([row(0), row(1, "b", epoch=2)], [LEFT, RIGHT])
CLAIMED = snapshot([row(0), row(1, epoch=2)], [LEFT, RIGHT])


def arriving(**counts: int) -> AppObservation:
    samples = {shard: ArrivalSample(n, n, 10.0) for shard, n in counts.items()}
    return app(streams=stream(arriving=samples))


FULL = {"a": ArrivalSample(9_000, 9_000, 10.0), "b": ArrivalSample(900, 9 << 20, 10.0)}
HOT = app(streams=stream(arriving=FULL))
THROTTLED = app(streams=stream(throttled={"shardId-0": 2, "shardId-1": 1}))
LAG = {KEYS[0]: lag(10, 60_000)}
BEHIND = app(streams=stream(throttled={"shardId-0": 2}, second=LAG))


def lags(
    first: int, second: int, after: Start = MOVED, seen: Snapshot | None = None
) -> AppObservation:
    """Return an observation of one shard that lags."""
    pair = {"first": lag(0, first), "second": lag(10, second, after)}
    samples = {name: {KEYS[0]: sample} for name, sample in pair.items()}
    return app(seen, streams=stream(**samples))


GROWS = "shardId-0: up to 3 min behind, and the lag grows"
UNPLANNED = [
    snapshot(
        members=[member("a", state=s), *(member(n, state=s, range=None) for n in "bc")]
    )
    for s in ("up", "degraded")
]
BY_LOAD = LeaderRow("session of a", "a", 1, assignor="load")
LOADS_UNKNOWN = snapshot(leader=BY_LOAD, read_at=1000.0)
UNCLAIMED = snapshot([row(0, epoch=7), row(1, epoch=7)])
RECLAIMED = snapshot([row(0, epoch=9, position=Position("1")), row(1, epoch=8)])

FINDINGS: list[tuple[Check, Severity, str, AppObservation]] = [
    (member_problems, CRITICAL, ": bad →", app(snapshot(corrupt=("bad",)))),
    (member_problems, CRITICAL, "no client is alive", fleet(DEAD)),
    (member_problems, NOTE, "no client is alive", EMPTY),
    # The last client isn't fenced, since no other one is alive.
    (member_problems, CRITICAL, "no client is alive", app(heartbeat_ages=AGES)),
    (member_problems, CRITICAL, "clients can't start", app(group(resetting=True))),
    (member_problems, CRITICAL, "no client has led", app(LEADERLESS)),
    (member_problems, WARNING, "changed 3 times", app(led(1), led(4))),
    (member_problems, NOTE, "takes no shards", fleet(DRAINED)),
    (operator_pauses, NOTE, "paused: x →", app(group(paused=True, pause_reason="x"))),
    (operator_pauses, NOTE, f"{ARN}: is paused →", PAUSED_STREAM),
    (operator_pauses, NOTE, "paused: shardId-0 →", PAUSED_ROWS),
    (split_fleet, CRITICAL, "go-1", app(go_clients=["go-1"])),
    (split_fleet, CRITICAL, "Spark query", fleet(A, SPARK)),
    (split_fleet, WARNING, "a consume orders; b consume clicks", fleet(A, B_APART)),
    (split_fleet, WARNING, "client a: it registered again", app(None, OFTEN)),
    # Each deploy restarts a client once, so one restart is no problem.
    (split_fleet, NOTE, "client a: it registered again", app(None, ONCE)),
    (uncovered_hash_keys, CRITICAL, "(50.0% in all)", app(HALF_ROWS)),
    (uncovered_hash_keys, WARNING, "planned for no client", app(HALF_PLAN)),
    (uncovered_hash_keys, WARNING, "planned for two clients", app(TWO_PLANS)),
    (uncovered_hash_keys, WARNING, "don't tile", app(streams=CUT)),
    (orphan_shards, CRITICAL, "says that it is read to its end", app(PARENT_ENDED)),
    (
        orphan_shards,
        WARNING,
        ": shardId-2, shardId-3: has no row: the leader",
        app(PARENT_ENDED, streams=SPLIT),
    ),
    (
        orphan_shards,
        NOTE,
        "has no row: the leader creates it at its next listing (30 s), and no live",
        app(snapshot([ENDED_ROW, row(1)], [DEAD]), streams=SPLIT),
    ),
    (
        orphan_shards,
        WARNING,
        "shardId-0 have had no living owner for 10 s; planned for a",
        app(UNOWNED),
    ),
    (orphan_shards, CRITICAL, "for 16 s", app(UNOWNED, seconds=16.0)),
    (orphan_shards, WARNING, "no living owner", ORPHANED),
    (orphan_shards, CRITICAL, "own their max_shards", app(snapshot(FREE, [AT_LIMIT]))),
    (orphan_shards, WARNING, "kinesumer drain CLIENT", app(snapshot(FREE, [DRAINED]))),
    (orphan_shards, WARNING, "consumes this", app(snapshot(FREE, [NO_STREAMS]))),
    (stuck_hand_overs, WARNING, "a to b for 10 s → a waits for its", app(MOVING)),
    (stuck_hand_overs, WARNING, "a is stalled", app(MOVING, heartbeat_ages=AGES)),
    (stuck_hand_overs, WARNING, "shardId-1 still wait for parents", app(LATE)),
    (hot_shards, WARNING, "a (90%), b (94%)", HOT),
    (hot_shards, NOTE, "c (30% of a shard's limit", arriving(a=200, b=200, c=3_000)),
    # The clients have caught up, so other consumers must use up the read limit.
    (throttled_shards, WARNING, "shardId-0 throttled the doctor's reads", THROTTLED),
    (throttled_shards, NOTE, "shardId-0 are behind", BEHIND),
    (idle_clients, NOTE, "3 clients share 2 shards", fleet(A, B, C)),
    # Fast, slowly, and stalled.
    (growing_lags, WARNING, GROWS, lags(170_000, 180_000)),
    (growing_lags, WARNING, GROWS, lags(174_000, 180_000)),
    (growing_lags, WARNING, GROWS, lags(180_000, 180_000, Start.LATEST)),
    # If most clients are degraded, plans give them shards nevertheless.
    *((waiting_plans, WARNING, "b, c got no plan for 10 s", app(s)) for s in UNPLANNED),
    (waiting_plans, NOTE, "isn't known yet", app(LOADS_UNKNOWN)),
    (
        repeated_claims,
        WARNING,
        "shardId-0: claimed several times within 10 s",
        app(UNCLAIMED, RECLAIMED),
    ),
]
HEALTHY: list[tuple[Check, AppObservation]] = [
    *((check, app()) for check in APP_CHECK_FUNCTIONS),
    (member_problems, app(group(resetting=True), snapshot())),
    (member_problems, app(LEADERLESS, snapshot())),
    (member_problems, app(led(1), led(2))),
    (split_fleet, fleet(DEAD, go_clients=["go-1"])),
    (split_fleet, fleet(SPARK)),
    (split_fleet, fleet(A, B_APART, BOTH)),
    (uncovered_hash_keys, app(HALF_ROWS, snapshot())),
    (uncovered_hash_keys, app(snapshot(), HALF_ROWS)),
    (uncovered_hash_keys, app(UNLISTED)),
    (uncovered_hash_keys, app(HALF_PLAN, snapshot())),
    # Shards that max_shards leaves without a client are a finding of orphan_shards.
    (uncovered_hash_keys, app(HALF_FULL)),
    # A client that joins has no range until the next plan.
    (uncovered_hash_keys, fleet(LEFT, member("b", range=None))),
    (uncovered_hash_keys, fleet(NO_STREAMS)),
    (uncovered_hash_keys, fleet(member("a", range=(), drained=True))),
    (uncovered_hash_keys, app(TWO_PLANS, snapshot())),
    # Kinesis may have listed the shard before it was closed and read to its end.
    (orphan_shards, app(snapshot(), PARENT_ENDED)),
    (orphan_shards, app(PARENT_ENDED, streams=CUT)),
    (uncovered_hash_keys, app(PARENT_ENDED)),
    # While clients still read the parent, its children need no rows.
    (orphan_shards, app(streams=SPLIT)),
    (orphan_shards, app(snapshot(), PARENT_ENDED, streams=SPLIT)),
    # An incomplete listing doesn't show that a row has no shard.
    (orphan_shards, app(streams=CUT)),
    (orphan_shards, app(UNOWNED, snapshot())),
    (orphan_shards, rows(row(0, owner="", paused=True), row(1))),
    (stuck_hand_overs, app(MOVING, ARRIVED)),
    (stuck_hand_overs, app(MOVING, CLAIMED)),
    (stuck_hand_overs, app(snapshot(), MOVING)),
    (stuck_hand_overs, app(snapshot([row(0), WAITING]), LATE)),
    # Uneven traffic isn't reported if it is far below the limit.
    (hot_shards, arriving(a=0, b=0, c=300)),
    (hot_shards, arriving(a=3_000)),
    (hot_shards, arriving()),
    (idle_clients, fleet(A, B)),
    (idle_clients, fleet(A, B, member("d", drained=True))),
    (idle_clients, app(snapshot([ENDED_ROW], [A, B, C]))),
    # Steady, falling, and short.
    *((growing_lags, lags(first, 180_000)) for first in (178_000, 190_000)),
    (growing_lags, lags(40_000, 50_000)),
    # Other checks report shards that nobody reads.
    (growing_lags, lags(170_000, 180_000, seen=UNOWNED)),
    (growing_lags, lags(170_000, 180_000, seen=snapshot([row(0, paused=True)]))),
    *((waiting_plans, app(snapshot(), new)) for new in UNPLANNED),
]


@pytest.mark.parametrize(("check", "severity", "text", "observation"), FINDINGS)
def test_each_problem_is_found(
    check: Check, severity: Severity, text: str, observation: AppObservation
) -> None:
    check_finding(check(observation), severity, text)


@pytest.mark.parametrize(("check", "observation"), HEALTHY)
def test_healthy_and_temporary_states_arent_reported(
    check: Check, observation: AppObservation
) -> None:
    assert list(check(observation)) == []


def test_the_worst_finding_decides() -> None:
    note = Finding("x", NOTE, "", "", "")
    assert worst([]) == worst([note]) == 0
    assert worst([note, note._replace(severity=WARNING)]) == 3
    assert worst([note._replace(severity=CRITICAL), note]) == 4


def test_holes_are_the_ranges_between_and_around_parts() -> None:
    last = HASH_KEYS - 1
    assert holes([(0, last)]) == []
    assert holes([]) == [(0, last)]
    assert holes([(20, 29), (5, 9), (7, 12)]) == [(0, 4), (13, 19), (30, last)]
    assert holes([(0, last), (3, 4)]) == []


def test_a_row_of_an_unlisted_shard_means_lost_records() -> None:
    finding, *_ = orphan_shards(app(streams=stream(listing=CHILDREN)))
    check_finding([finding], CRITICAL, "no longer lists shardId-0")


def test_an_account_that_is_nearly_full_is_reported() -> None:
    [finding] = shard_quota(AccountLimits(400, 500))
    assert "400 of 500 shards" in finding.text
    assert not list(shard_quota(AccountLimits(399, 500)))
    assert not list(shard_quota(None))


UNREAD = verify.Verdict(verify.UNCHECKED, Severity.WARNING, "slow down")


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([verify.THERE, verify.QUIET], []),
        ([verify.ENDED, verify.NOT_STARTED], []),
        # Another check reports the positions that couldn't be read.
        ([UNREAD, verify.THERE], []),
        (
            [verify.EXPIRED, verify.EXPIRED],
            [(WARNING, "expired: shardId-0, shardId-1: its record is older")],
        ),
        (
            [verify.FOREIGN, verify.EXPIRED],
            [(CRITICAL, "refused: shardId-0"), (WARNING, "expired: shardId-1")],
        ),
    ],
)
def test_each_verdict_is_reported_once_with_its_shards(
    verdicts: list[verify.Verdict], expected: list[tuple[Severity, str]]
) -> None:
    streams = stream(verdicts=dict(zip(KEYS, verdicts, strict=True)))
    findings = list(invalid_positions(app(streams=streams)))
    assert [finding.severity for finding in findings] == [s for s, _ in expected]
    for finding, (_, text) in zip(findings, expected, strict=True):
        assert finding.text.startswith(text)


THROTTLED_LAG = lag(10, None, problem="throttled")
NEAR_END = lag(10, 20 * HOUR)
URGENT = CRITICAL, "83%"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # A lag that couldn't be read doesn't mean that records are lost.
        (lag(0, 1), THROTTLED_LAG, None),
        (lag(0, HOUR), lag(10, HOUR + 10_000), None),
        (
            lag(0, 14 * HOUR),
            lag(10, 14 * HOUR + 10_000),
            (WARNING, "58% of its retention old; at this rate records are lost in 10"),
        ),
        (lag(0, 20 * HOUR - 10_000), NEAR_END, URGENT),
        (lag(0, 15 * HOUR), lag(10, 14 * HOUR, MOVED), None),
        (lag(0, 21 * HOUR), lag(10, 20 * HOUR, MOVED), (WARNING, "the lag falls")),
        # Near the end of the retention, one sample is enough for a finding.
        (THROTTLED_LAG._replace(at=0), NEAR_END, URGENT),
    ],
)
def test_records_that_expire(
    before: LagSample, after: LagSample, expected: tuple[Severity, str] | None
) -> None:
    streams = stream(first={KEYS[0]: before}, second={KEYS[0]: after})
    findings = list(expiring_records(app(streams=streams)))
    if expected is None:
        assert findings == []
    else:
        check_finding(findings, *expected)


def registered(*names: str) -> ConsumerObservation:
    """Return the consumers of a stream, of which an app uses the first."""
    consumers = [StreamConsumer(name, "", "ACTIVE", 1.0) for name in names]
    uses = {(ARN, names[0]): Counter({"one": 2})}
    return ConsumerObservation({ARN: consumers, OTHER: []}, uses, "table")


def test_streams_that_have_no_place_for_another_app_are_named() -> None:
    assert not [*full_streams(registered(*"abcdefghijklmno"))]
    expected = "16 stream consumers are registered: AWS permits 20 for a stream, or 50"
    check_finding(full_streams(registered(*"abcdefghijklmnop")), NOTE, expected)


def test_consumers_that_nobody_uses_are_named() -> None:
    observed = registered("billing", "old")
    for text in ("consumer old: AWS bills", "kinesumer fan-out deregister orders old"):
        check_finding(unused_consumers(observed), NOTE, text)
