"""The groups that can be simulated: named ones, and ones drawn from a seed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

from kinesumer.model.streams import Start

FAULTS_PER_MINUTE = 6.0
"""Faults of all kinds together."""
SMALL_RECORD_BYTES = 20
DRAWN, EACH, LIMITS = "drawn", "each", "limits"
"""Names for several scenarios: drawn from the seed, each in turn, or with limits."""


@dataclass(frozen=True)
class Scenario:
    """A group to simulate."""

    name: str = "plain"
    members: int = 3
    shards: tuple[int, ...] = (8,)
    """Shards of each stream at the start."""
    records_per_second: float = 20.0
    """Over all streams."""
    aggregated: float = 0.0
    """Share of the Kinesis records that hold several user records."""
    assignor: Literal["range", "sticky"] = "range"
    commit: Literal["auto", "manual"] = "auto"
    batches: bool = False
    concurrency: int = 0
    """Calls at a time in a shard by ``run()``, with many partition keys; 0: user code
    iterates."""
    start: Start = Start.TRIM_HORIZON
    mixed: bool = False
    """Members consume different streams."""
    min_read_interval_seconds: float = 0.2
    """Shortest time between two reads of a shard."""
    static_ids: bool = False
    """A restarted process has its predecessor's id."""
    faults_per_minute: float = FAULTS_PER_MINUTE
    """All kinds together, if no rates are given."""
    drift: float = 0.05
    """How much faster or slower a machine's clocks may run."""
    together: bool = False
    """All start at the same moment."""
    labels: int = 0
    """How many zones the members are spread over; 0: they don't say."""
    app: str = "app"
    faults: str = "all"
    """What goes wrong, unless something else is asked for."""
    tasks: int = 1
    """How many tasks of a client iterate over its batches (``commit="manual"``)."""
    record_bytes: int = SMALL_RECORD_BYTES
    link_bytes_per_second: float = 0.0
    """What each client's network carries of Kinesis's answers; 0: no limit."""
    table_units_per_second: float | None = None
    """Write units that the table takes while there are faults; None: no limit."""
    apps: int = 1
    """How many apps consume the streams, each with so many members."""
    idle: float = 0.0
    """Share of the shards that get no records after the first ones."""
    retention_seconds: float = 0.0
    """After so long records expire; 0: only where a fault says so."""
    skew_seconds: float = 0.0
    """How far the clocks of Kinesis's servers are off while there are faults."""
    config: dict[str, Any] = field(default_factory=dict)


NAMED = (
    Scenario("plain"),
    Scenario("alone", members=1, shards=(4,)),
    Scenario(
        "sticky",
        members=5,
        shards=(6, 4),
        assignor="sticky",
        static_ids=True,
        aggregated=0.1,
    ),
    Scenario("labels", members=6, shards=(10, 5), labels=2, assignor="sticky"),
    Scenario("manual", shards=(4, 4), commit="manual", aggregated=0.3),
    Scenario("batches", members=4, shards=(1, 1, 1), batches=True, together=True),
    Scenario(
        "latest", shards=(4, 2), start=Start.LATEST, static_ids=True, together=True
    ),
    Scenario("mixed", members=4, shards=(3, 3, 2), mixed=True),
)
CALM = Scenario(
    "calm",
    shards=(4,),
    records_per_second=0.2,
    min_read_interval_seconds=5.0,
    faults_per_minute=1 / 360,
)
"""A fault every six hours and little traffic, for simulated weeks."""
LIMITED = (
    Scenario(
        "link",
        members=1,
        shards=(14,),
        records_per_second=10,
        record_bytes=100_000,
        link_bytes_per_second=3_000_000,
        min_read_interval_seconds=1.0,
        faults="kinesis_down:0.4:300,narrow:0.4:60,join:0.1,leave:0.1",
    ),
    Scenario(
        "room",
        members=1,
        shards=(40,),
        records_per_second=20,
        record_bytes=100_000,
        link_bytes_per_second=300_000_000,
        min_read_interval_seconds=1.0,
        faults="kinesis_down:0.4:300,slow:0.4:30,join:0.1,leave:0.1",
    ),
    Scenario(
        "blocked",
        members=3,
        shards=(6,),
        records_per_second=4,
        faults="block:1:60,block_each:1:60,join:0.5,leave:0.5,slow:0.5",
    ),
    Scenario(
        "tasks",
        members=2,
        shards=(4,),
        commit="manual",
        batches=True,
        tasks=3,
        faults="join:1,leave:1",
    ),
    Scenario(
        "apps", members=2, shards=(3, 2), apps=3, faults="foreign,join:0.5,leave:1"
    ),
    Scenario(
        "table",
        shards=(400,),
        records_per_second=5,
        min_read_interval_seconds=20.0,
        table_units_per_second=30,
        faults="busy_table:1,join:0.5,leave:0.5,crash:0.5,split:0.5,merge:0.5",
    ),
    Scenario(
        "fleet",
        members=100,
        shards=(1500, 500),
        records_per_second=10,
        min_read_interval_seconds=60.0,
        table_units_per_second=1000,
        together=True,
        faults="crash:0.5,join:0.5,leave:0.5,busy_table:0.3:20,store_down:0.2:20",
    ),
    Scenario(
        "idle",
        shards=(6, 2),
        records_per_second=2,
        min_read_interval_seconds=1.0,
        idle=0.5,
        retention_seconds=120,
        faults="crash:0.3,join:0.2,leave:0.3,stall:0.2,iterators:0.2,split:0.1",
    ),
    Scenario(
        "clocks",
        shards=(4, 2),
        start=Start.LATEST,
        together=True,
        skew_seconds=0.5,
        faults="skew:1,seek:4,crash:1,join:1,leave:1,refresh:1,split:0.5,merge:0.5,drift:0.5",
    ),
)
"""Groups at limits of links, tables, streams, processes and clocks."""
SIZES = ((0.9, (2, 6), (1, 16)), (0.99, (3, 20), (4, 60)), (1.0, (5, 50), (20, 500)))
"""Most drawn groups are small, since large ones take a hundred times as long: up to
which draw, members from … to, shards from … to."""
SLOW_FROM_SHARDS = 30
LIMITED_SHARE = 0.4
"""Share of the drawn groups that have a limit."""


def scenario_for(name: str, seed: int) -> Scenario:
    """Return the scenario of a seed. Raises KeyError."""
    if name == DRAWN:
        return draw_scenario(seed)
    if name == EACH:
        return NAMED[seed % len(NAMED)]
    if name == LIMITS:
        return LIMITED[seed % len(LIMITED)]
    return {scenario.name: scenario for scenario in (*NAMED, *LIMITED, CALM)}[name]


def draw_scenario(seed: int) -> Scenario:
    """Return the group that belongs to a seed."""
    draw = random.Random(f"shape {seed}")
    chance = draw.random()
    members, shards = next(sizes for most, *sizes in SIZES if chance < most)
    total = _between(draw, *shards)
    scenario = Scenario(
        DRAWN,
        members=_between(draw, *members),
        shards=_streams(draw, total),
        aggregated=draw.choice((0.0, 0.0, 0.1, 0.3)),
        assignor=draw.choice(("range", "range", "sticky")),
        commit=draw.choice(("auto", "auto", "manual")),
        batches=draw.random() < 0.3,
        start=draw.choice((Start.TRIM_HORIZON, Start.LATEST)),
        mixed=draw.random() < 0.4,
        static_ids=draw.random() < 0.4,
        together=draw.random() < 0.4,
        min_read_interval_seconds=0.2 if total < SLOW_FROM_SHARDS else 2.0,
    )
    stuck_soon = draw.random() < 0.3
    scenario = replace(
        scenario,
        config={"max_processing_seconds": 20.0} if stuck_soon else {},
        labels=draw.choice((0, 0, 0, 2, 3)),
    )
    calls = draw.choice((0, 0, 1, 4)) if scenario.commit == "auto" else 0
    scenario = replace(scenario, concurrency=calls)
    if draw.random() < LIMITED_SHARE:
        return _limited(draw, scenario)
    return scenario


def _limited(draw: random.Random, scenario: Scenario) -> Scenario:
    """Give a group a limit, in proportion to its size."""
    shards = sum(scenario.shards)
    match draw.choice(("link", "tasks", "apps", "table", "idle", "clocks")):
        case "link":
            size = draw.choice((20_000, 100_000))
            # One client may have to read all records, faster than they arrive.
            return replace(
                scenario,
                record_bytes=size,
                records_per_second=10,
                aggregated=min(scenario.aggregated, 0.1),
                link_bytes_per_second=size * _between(draw, 60, 2000),
            )
        case "tasks":
            tasks = draw.randint(2, 4)
            return replace(
                scenario, commit="manual", batches=True, concurrency=0, tasks=tasks
            )
        case "apps" if shards <= 12:
            apps = draw.randint(2, 3)
            return replace(scenario, members=min(scenario.members, 3), apps=apps)
        case "table":
            units = 20 + scenario.members + shards / 4
            return replace(scenario, table_units_per_second=units)
        case "idle":
            return replace(scenario, idle=0.5, retention_seconds=120)
    return replace(scenario, skew_seconds=0.5)


def _between(draw: random.Random, least: int, most: int) -> int:
    """Draw a size with a logarithmic distribution."""
    return round(least * math.pow(most / least, draw.random()))


def _streams(draw: random.Random, total: int) -> tuple[int, ...]:
    """Distribute shards to one to four streams."""
    cuts = draw.sample(range(1, total), min(total - 1, draw.choice((0, 0, 1, 2, 3))))
    ends = [0, *sorted(cuts), total]
    return tuple(high - low for low, high in pairwise(ends))
