"""Test that the exporter reads at its own interval, and which clients it wants."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.aws.session import ClientFactory
from kinesumer.errors import AccessDeniedError, StoreUnavailableError
from kinesumer.model.reports import Load
from kinesumer.model.rows import Deaths
from kinesumer.model.streams import HASH_KEYS, ShardKey
from kinesumer.ops.exporter.collector import (
    DEFAULT_OPTIONS,
    KEEP_RATIO,
    AppReader,
    ScaleObserver,
    ScaleOptions,
    greatest,
)
from kinesumer.ops.exporter.metrics import AppMetrics, Scale
from kinesumer.ops.group.lag import Lags
from kinesumer.ops.group.observation import Observation, observe
from tests.support.doctor import ARN, member, row, snapshot
from tests.support.exported_metrics import STREAM, reading, samples
from tests.support.shares import stored_loads
from tests.support.world import APP, World, in_virtual_time

NO_CLIENTS: ClientFactory = SimpleNamespace()  # type: ignore[assignment]


class Failing:
    """A state store that raises an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def get(self, *_: Any, **__: Any) -> None:
        raise self._error

    query = get


def reader(world: World) -> AppReader:
    return AppReader(APP, world.clock, lag=False)


@in_virtual_time
async def test_shards_without_an_owner_age_from_the_reading_that_saw_them(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 2)
    client = world.client("c1")
    await world.until(lambda: len(client.held) == 2)
    await client.stop()
    one = reader(world)
    await one.read(NO_CLIENTS, world.table)
    await asyncio.sleep(20.0)
    await one.read(NO_CLIENTS, world.table)
    assert one.metrics.reading is not None
    [stream] = one.metrics.reading.report.streams
    assert [shard.unowned_seconds for shard in stream.shards] == [20.0] * 2


@in_virtual_time
async def test_an_error_is_logged_when_it_begins_and_ends(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    one = reader(world)
    broken: Any = Failing(StoreUnavailableError("no answer"))
    for store in (world.table, broken, broken, broken, world.table, world.table):
        await one.read(NO_CLIENTS, store)
    assert caplog.messages == [
        f"app {APP} couldn't be read: no answer",
        f"app {APP} can be read again",
    ]
    assert (one.metrics.reads, one.metrics.errors) == (6, 3)


@in_virtual_time
async def test_a_permanent_error_ends_the_start_and_not_a_running_exporter(
    world: World,
) -> None:
    denied: Any = Failing(AccessDeniedError("dynamodb:Query", "table t"))
    one = reader(world)
    with pytest.raises(AccessDeniedError):
        await one.read(NO_CLIENTS, denied)
    await one.read(NO_CLIENTS, denied)
    assert one.metrics.reading is None


SHARDS = 8
BUSY = 4.2


def key(number: int) -> ShardKey:
    return row(number).key


def fleet(
    work: dict[int, float],
    lags: dict[int, int] | None = None,
    *,
    changes: dict[int, dict[str, Any]] | None = None,
) -> Observation:
    """Return a fleet whose shards cause so much work, and are so far behind."""
    step = HASH_KEYS // SHARDS
    rows = [
        row(number, owner, **(changes or {}).get(number, {}))._replace(
            first_hash=number * step, last_hash=(number + 1) * step - 1
        )
        for number, owner in enumerate("aabbccdd")
    ]
    members = []
    for name in "abcd":
        loads = {
            (row.key, row.first_hash): Load(2e3, 10.0, work[number])
            for number, row in enumerate(rows)
            if row.owner_id == name and number in work
        }
        members.append(member(name, load=stored_loads(loads, frozenset({ARN}))))
    millis = Lags({key(number): lag for number, lag in (lags or {}).items()}, {})
    return observe(None, snapshot(rows, members), millis, 0.0)


def scale_of(
    view: Observation, options: ScaleOptions = DEFAULT_OPTIONS, *, has_lags: bool = True
) -> Scale:
    """Return the result of readings of a fleet that doesn't change for a minute."""
    observer = ScaleObserver(options)
    for now in range(0, 70, 10):
        found = observer.observe(view, float(now), has_lags=has_lags)
    return found


EVEN = dict.fromkeys(range(SHARDS), 0.3)
CURRENT = dict.fromkeys(range(SHARDS), 6000)  # a commit interval, and a second


def test_the_load_needs_as_many_clients_as_have_the_target_utilization() -> None:
    assert scale_of(fleet(EVEN, CURRENT)).wanted == {"load": 4, "catch_up": 4}
    options = ScaleOptions(target_utilization=1.5)
    assert scale_of(fleet(EVEN, CURRENT), options).wanted["load"] == 2


BEHIND = dict.fromkeys(range(SHARDS), 120_000)


@pytest.mark.parametrize(
    ("lags", "seconds", "catch_up"),
    # What a commit interval explains is no backlog.
    [(CURRENT, 1.0, 4), (BEHIND, 600.0, 5), (BEHIND, 300.0, 6)],
)
def test_a_backlog_needs_more_clients_and_a_shorter_time_still_more(
    lags: dict[int, int], seconds: float, catch_up: int
) -> None:
    options = ScaleOptions(catch_up_seconds=seconds)
    wanted = scale_of(fleet(EVEN, lags), options).wanted
    assert wanted == {"load": 4, "catch_up": catch_up}


@pytest.mark.parametrize(
    "change",
    [{"paused": True}, {"ended": True}, {"ready": False}, {"deaths": Deaths(3)}],
)
def test_shards_that_more_clients_could_not_read_dont_count(
    change: dict[str, Any],
) -> None:
    busy = dict.fromkeys(range(SHARDS), BUSY)
    far = dict.fromkeys(range(SHARDS), 3_600_000)
    view = fleet(busy, far, changes=dict.fromkeys(range(5), change))
    assert scale_of(view).wanted == {"load": 3, "catch_up": 3}


def test_without_lags_only_the_load_is_known() -> None:
    assert scale_of(fleet(EVEN), has_lags=False).wanted == {"load": 4}


def test_without_loads_nothing_is_known() -> None:
    assert scale_of(fleet({}, CURRENT)).wanted == {}


# --- metrics --------------------------------------------------------------------------


def metrics_of(view: Observation, options: ScaleOptions) -> dict[str, dict[str, float]]:
    """Return the values of each metric, by the labels that aren't the stream's."""
    found = samples(AppMetrics("a", 1, 0, reading(view, True, scale_of(view, options))))
    return {
        name: {
            "".join(text for label, text in labels if label not in STREAM): value
            for labels, value in values.items()
        }
        for name, values in found.items()
    }


UNEVEN = {number: number / 10 for number in range(SHARDS)}


def test_only_the_busiest_shards_have_metrics_of_their_load() -> None:
    metrics = metrics_of(fleet(UNEVEN), ScaleOptions(top_shards=2))
    assert metrics["shard_handler_seconds_per_second"] == {
        "shardId-7": pytest.approx(0.7, rel=0.01),
        "shardId-6": pytest.approx(0.6, rel=0.01),
    }
    for name in ("work", "bytes_per_second", "records_per_second"):
        assert metrics[f"shard_{name}"].keys() == {"shardId-7", "shardId-6"}
    assert metrics["shard_work"]["shardId-7"] == pytest.approx(0.7011, rel=0.01)


def test_only_the_shards_furthest_behind_have_metrics_of_their_lag() -> None:
    lags = {number: 1000 * number for number in range(SHARDS)}
    metrics = metrics_of(fleet(UNEVEN, lags), ScaleOptions(top_shards=1))
    assert metrics["shard_lag_seconds"] == {"shardId-7": 7.0}


def test_no_shard_has_metrics_of_its_own_if_none_is_wanted() -> None:
    metrics = metrics_of(fleet(UNEVEN, CURRENT), ScaleOptions(top_shards=0))
    assert not [name for name in metrics if name.startswith("shard_")]


def test_the_metrics_of_a_shard_that_is_no_longer_busy_disappear() -> None:
    options = ScaleOptions(top_shards=1)
    observer = ScaleObserver(options)
    first = observer.observe(fleet(UNEVEN), 0.0, has_lags=True)
    then = observer.observe(fleet({**UNEVEN, 7: 0.0}), 10.0, has_lags=True)
    assert (first.busiest, then.busiest) == ((key(7),), (key(6),))


def test_a_clients_work_is_that_of_its_shards() -> None:
    metrics = metrics_of(fleet(UNEVEN), ScaleOptions())
    expected = {"a": 0.1, "b": 0.5, "c": 0.9, "d": 1.3}
    assert metrics["member_work"] == pytest.approx(expected, abs=0.01)


values = st.dictionaries(st.text(max_size=3), st.floats(0, 100), max_size=20)


@given(values, st.integers(0, 25))
def test_without_a_selection_the_greatest_are_selected(
    values: dict[str, float], count: int
) -> None:
    chosen = greatest(values, (), count)
    assert [values[key] for key in chosen] == sorted(values.values())[::-1][:count]


@given(values, st.sets(st.text(max_size=3)), st.integers(0, 25))
def test_nothing_left_out_is_much_greater_than_what_is_selected(
    values: dict[str, float], selected: set[str], count: int
) -> None:
    chosen = greatest(values, selected, count)
    assert len(set(chosen)) == min(count, len(values))
    least = min((values[key] for key in chosen), default=0.0)
    for key in set(values) - set(chosen) if count else ():
        assert values[key] <= KEEP_RATIO * least


def test_noise_changes_nothing() -> None:
    random, names = Random(1), [f"shard {number}" for number in range(100)]
    chosen = greatest(dict.fromkeys(names, 1.0), (), 20)
    for _ in range(100):
        noisy = {name: random.uniform(0.82, 1.22) for name in names}
        assert set(greatest(noisy, chosen, 20)) == set(chosen)


@pytest.mark.parametrize(("new", "expected"), [(1.4, "a"), (1.6, "b")])
def test_a_much_greater_value_takes_the_place_of_a_selected_one(
    new: float, expected: str
) -> None:
    assert greatest({"a": 1.0, "b": new}, ("a",), 1) == (expected,)


def test_of_equal_values_a_selected_one_stays() -> None:
    assert greatest({"a": 0.0, "b": 0.0, "c": 0.0}, ("c",), 2) == ("c", "a")
