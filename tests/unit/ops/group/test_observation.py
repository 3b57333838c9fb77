"""Test the judgement of shards as caught up, and the health of one client."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.errors import CorruptRowError, StoreUnavailableError
from kinesumer.model.rows import Key, Row
from kinesumer.ops.group.lag import Lags
from kinesumer.ops.group.observation import FleetView, check_client
from tests.support.doctor import KEYS, member, row, snapshot
from tests.support.world import World

MEMBER: Row = {
    "pk": "member#app",
    "sk": "c1",
    "session": "s1",
    "incarnation": 0,
    "beat": 5,
    "lease_ms": 8000,
    "state": "up",
    "range": "",
}
DOWN = StoreUnavailableError("not reachable")
NO_HEARTBEAT = "no heartbeat for its lease of 8 s"
DEAD, AGAIN = {"dead": True}, {"session": "s2", "beat": 0, "dead": False}
BEAT = {"beat": 6}
Change = dict[str, Any] | StoreUnavailableError | None


class Table:
    """A table that applies the next change at each read, and then keeps the last."""

    def __init__(self, *changes: Change) -> None:
        self.changes = list(changes)
        self.reads = 0

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        assert (key, consistent) == (("member#app", "c1"), True)
        self.reads += 1
        change = self.changes.pop(0) if len(self.changes) > 1 else self.changes[0]
        if isinstance(change, StoreUnavailableError):
            raise change
        if change is None:
            return None
        return {k: v for k, v in {**MEMBER, **change}.items() if v is not None}


@pytest.mark.parametrize(
    ("changes", "health", "why", "reads", "seconds"),
    [
        ([{}, BEAT], (True, True, "up"), "part of the plan", 2, 2.0),
        # The check waits for a heartbeat that is late.
        ([{}, {}, {}, BEAT], (True, True, "up"), "part of the plan", 4, 4.0),
        ([{}, BEAT | {"range": None}], (True, False, "up"), "waits for a plan", 2, 2.0),
        ([{}, BEAT | {"state": "leaving"}], (True, False, "leaving"), "", 2, 2.0),
        ([{}, BEAT | {"state": "degraded"}], (True, False, "degraded"), "", 2, 2.0),
        ([{}], (False, False, "up"), NO_HEARTBEAT, 8, 8.0),
        # The client's row determines the lease: 2 s here.
        ([{"lease_ms": 2000}], (False, False, "up"), "of 2 s", 8, 2.0),
        # A client that was fenced may register again during the check.
        ([DEAD, DEAD, AGAIN], (True, True, "up"), "", 3, 3.0),
        ([DEAD], (False, False, "dead"), "left or was fenced", 8, 8.0),
        ([None], (False, False, None), "no client of this id", 1, 0.0),
        # An outage of the state store makes the health unknown, unless it ends in time.
        ([DOWN], (None, False, None), "not reachable", 1, 0.0),
        ([{}, DOWN], (None, False, None), "not reachable", 8, 8.0),
        ([{}, {}, DOWN, {}], (None, False, None), "not reachable", 8, 8.0),
        ([{}, DOWN, BEAT], (True, True, "up"), "", 3, 3.0),
    ],
)
async def test_health_follows_from_the_row(
    world: World,
    changes: list[Change],
    health: tuple[bool | None, bool, str | None],
    why: str,
    reads: int,
    seconds: float,
) -> None:
    table, began = Table(*changes), world.clock.now()
    store: Any = table
    result = await check_client(store, world.clock, "app", "c1")
    assert result[:3] == health
    assert why in result.why
    assert (table.reads, round(world.clock.now() - began, 3)) == (reads, seconds)


async def test_a_row_that_cannot_be_read_is_an_error(world: World) -> None:
    store: Any = Table({}, {"beat": 6, "range": 7})
    with pytest.raises(CorruptRowError, match="range"):
        await check_client(store, world.clock, "app", "c1")


@pytest.mark.parametrize(
    ("millis", "commit_ms", "expected"),
    [
        (6_000, 5_000, True),
        (6_001, 5_000, False),
        (60_500, 60_000, True),
        (None, 5_000, None),
    ],
)
def test_a_shard_is_caught_up_if_the_commit_interval_explains_its_lag(
    millis: int | None, commit_ms: int, expected: bool | None
) -> None:
    lags = {} if millis is None else {KEYS[0]: millis}
    found = snapshot([row(0)], [member("a", commit_ms=commit_ms)])
    assert FleetView(found, lags=Lags(lags, {})).caught_up([row(0)]) is expected


def test_a_shard_that_no_client_reads_is_caught_up_only_at_its_tip() -> None:
    rows = [row(0, owner=""), row(1, owner="dead")]
    found = FleetView(snapshot(rows), lags=Lags({KEYS[0]: 0, KEYS[1]: 1}, {}))
    assert [found.caught_up([each]) for each in rows] == [True, False]


def test_a_stream_is_caught_up_if_all_shards_are_and_ended_ones_do_not_count() -> None:
    rows = [row(0), row(1), row(2, ended=True)]
    part, whole = {KEYS[0]: 0}, {KEYS[0]: 0, KEYS[1]: 5_000}
    for lags, expected in [(part, None), (whole, True), ({KEYS[1]: 9_000}, False)]:
        found = FleetView(snapshot(rows), lags=Lags(lags, {}))
        assert found.caught_up(rows) is expected
    assert FleetView(snapshot(rows)).caught_up(rows[2:]) is None
