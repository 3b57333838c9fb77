"""The groups to simulate, which have a name or are drawn from a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

from kinesumer.handlers.handler_function import HandlerFunction
from kinesumer.model.owned import OnAssigned, OnRevoked
from kinesumer.model.streams import Start
from kinesumer.testing.simulation.machine import EPOCH

# The kinds of faults of a group that uses fan-out.
WITH_SUBSCRIPTIONS = "all,subscriptions"
# Records that kill each process that gets them, beside other kinds of faults.
POISON = "poison:0.5"
# Switches of a stream to AUTO or back, beside other kinds of faults.
SWITCHES = "auto:1"
# Names that select a scenario by the seed: a drawn one, one of NAMED, one of LIMITED.
DRAWN, EACH, LIMITS = "drawn", "each", "limits"


@dataclass(frozen=True)
class UserCode:
    """A user's handler and callbacks that simulated clients call."""

    handler: HandlerFunction
    # The function that returns the nth record's data.
    data: Callable[[int], bytes] | None = None
    # Types of user code's errors after which the process is started again.
    restarts_after: tuple[type[Exception], ...] = ()
    on_assigned: OnAssigned | None = None
    on_revoked: OnRevoked | None = None


# The longest duration of a fault, most of which are much shorter, and the longest delay
# of a late or repeated request.
MAX_FAULT_SECONDS = 60.0


@dataclass(frozen=True)
class Fault:
    """A fault to inject at a given time."""

    at: float  # seconds since the simulation's start
    kind: str
    duration_seconds: float
    draw: int  # seed of the fault's random choices, such as the affected process


@dataclass(frozen=True)
class Scenario:
    """A group to simulate."""

    name: str = "plain"
    members: int = 3
    """Clients at the start."""
    shards: tuple[int, ...] = (8,)
    """Shards of each stream at the start."""
    records_per_second: float = 20.0
    """The total rate of records over all streams."""
    aggregated: float = 0.0
    """Share of the Kinesis records that hold several user records."""
    odd_aggregates: float = 0.0
    """Share of the aggregates that are as only other producers write them."""
    assignor: Literal["range", "load"] = "range"
    commit: Literal["auto", "manual"] = "auto"
    batches: bool = False
    concurrency: int = 0
    """Concurrent handler calls per shard. If it is 0, clients don't use ``run()``."""
    start: Start = Start.TRIM_HORIZON
    mixed: bool = False
    """True if members may consume different streams."""
    min_read_interval_seconds: float = 0.2
    """Shortest time between two reads of a shard."""
    static_ids: bool = False
    """True if a restarted process keeps the client ID of its predecessor."""
    faults_per_minute: float = 6.0
    """The total rate of all kinds of faults, if no rates are given."""
    drift: float = 0.05
    """The maximum deviation of a machine's clock rate from 1."""
    together: bool = False
    """True if all members start at the same time."""
    labels: int = 0
    """Number of zones of the members, or 0 for no zones."""
    app: str = "app"
    faults: str = "all"
    """Kinds of faults and their rates, unless others are requested."""
    tasks: int = 1
    """Number of tasks with which a client iterates over its batches."""
    record_bytes: int = 20
    link_bytes_per_second: float = 0.0
    """Bandwidth of each client for Kinesis's answers, or 0 for no limit."""
    table_units_per_second: float | None = None
    """Write units per second of the table during faults, or None for no limit."""
    apps: int = 1
    """Number of apps that consume the streams, each with ``members`` clients."""
    idle: float = 0.0
    """Share of the shards that get no records after the first seconds."""
    retention_seconds: float = 0.0
    """Age at which records expire. If it is 0, only faults expire records."""
    skew_seconds: float = 0.0
    """Greatest error of the clocks of Kinesis's servers during the faults."""
    fan_out: float = 0.0
    """Share of the streams that each client reads by fan-out."""
    subscription_seconds: float = 300.0
    """Time after which a subscription ends."""
    callbacks: bool = False
    """True if clients have ``on_assigned`` and ``on_revoked``."""
    other_version: str = ""
    """Root of a checkout of another version, which some of the clients run."""
    kcl_fleet: bool = False
    """True if the clients are in a KCL fleet, beside its workers."""
    tables: int = 0
    """The number of streams, from the first on, that are those of tables."""
    roll_over_seconds: float = 0.0
    """About how long a shard of a table is open. If it is 0, for ever."""
    config: dict[str, Any] = field(default_factory=dict)


NAMED = (
    Scenario("plain"),
    Scenario("alone", members=1, shards=(4,)),
    Scenario("ids", members=5, shards=(6, 4), static_ids=True, aggregated=0.1),
    Scenario("labels", members=6, shards=(10, 5), labels=2),
    Scenario("manual", shards=(4, 4), commit="manual", aggregated=0.3),
    Scenario("batches", members=4, shards=(1, 1, 1), batches=True, together=True),
    Scenario(
        "latest", shards=(4, 2), start=Start.LATEST, static_ids=True, together=True
    ),
    Scenario("full", members=5, shards=(8, 4), config={"max_shards": 4}),
    Scenario("load", members=4, shards=(12, 4), assignor="load"),
    Scenario("mixed", members=4, shards=(3, 3, 2), mixed=True),
    Scenario(
        "fan-out",
        members=4,
        shards=(4, 3),
        aggregated=0.1,
        fan_out=0.7,
        subscription_seconds=30,
        faults=WITH_SUBSCRIPTIONS,
    ),
    Scenario(
        "poison", shards=(4, 2), aggregated=0.1, concurrency=2, faults=f"all,{POISON}"
    ),
)
# A group with a fault every six hours and little traffic, to simulate weeks.
CALM = Scenario(
    "calm",
    shards=(4,),
    records_per_second=0.2,
    min_read_interval_seconds=5.0,
    faults_per_minute=1 / 360,
)
# A group with a deploy and expired keys once a day, and now and then a wrong clock, a
# crash or a reshard, to simulate months. Half of its shards are idle. Records expire
# after a day.
MONTHS = Scenario(
    "months",
    shards=(4, 2),
    records_per_second=0.05,
    min_read_interval_seconds=5.0,
    static_ids=True,
    skew_seconds=0.5,
    idle=0.5,
    retention_seconds=86_400,
    faults=(
        "deploy:0.0007,no_keys:0.0007:3600,no_keys_of_all:0.0001:600,jump:0.0002,"
        "skew:0.0002,drift:0.0001,crash:0.0002,split:0.00005,merge:0.00005"
    ),
)
# A group whose user code has state per shard, in callbacks.
CALLBACKS = Scenario("callbacks", members=4, shards=(4, 3), callbacks=True)
# A group whose streams distribute records by AUTO from time to time.
AUTO = Scenario(
    "auto", shards=(4, 3), aggregated=0.1, concurrency=4, faults=f"all,{SWITCHES}"
)
# Two tables, whose shards are open for a minute, beside a Kinesis stream; and a table
# for days, as on AWS.
TABLES = replace(CALLBACKS, name="tables", shards=(5, 2, 3), concurrency=2, tables=2)
TABLES = replace(TABLES, roll_over_seconds=60)
TABLE_DAYS = replace(MONTHS, name="table-days", tables=1, roll_over_seconds=4 * 3600)
# A fleet of KCL workers and clients. Each deploy replaces some by the other kind.
KCL = Scenario("kcl", members=4, shards=(4, 2), aggregated=0.2, kcl_fleet=True)
KCL = replace(KCL, faults="fleet,split:0.5,merge:0.5,deploy:0.5")
OTHERS = CALM, MONTHS, CALLBACKS, AUTO, TABLES, TABLE_DAYS, KCL
# Groups that reach the limits of links, tables, streams, processes or clocks.
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
SCENARIOS = {scenario.name: scenario for scenario in (*NAMED, *LIMITED, *OTHERS)}
# The sizes of drawn groups. Most groups are small, since large ones take a hundred
# times as long. A random number from 0 to 1 selects the first entry with a greater
# bound. After its bound, an entry has a range of members and a range of shards.
SIZES = ((0.9, (2, 6), (1, 16)), (0.99, (3, 20), (4, 60)), (1.0, (5, 50), (20, 500)))
SLOW_FROM_SHARDS = 30
# Share of the drawn groups that have a limit. The same share has each of ``EXTRAS``.
EXTRA_SHARE = 0.4


def scenario_for(name: str, seed: int) -> Scenario:
    """Return the scenario with a name. Raises KeyError.

    If the name is that of a set of scenarios, the seed selects or draws one of the set.
    """
    if name == DRAWN:
        return draw_scenario(seed)
    if name == EACH:
        return NAMED[seed % len(NAMED)]
    if name == LIMITS:
        return LIMITED[seed % len(LIMITED)]
    return SCENARIOS[name]


def draw_scenario(seed: int) -> Scenario:
    """Draw a group from a seed."""
    draw = random.Random(f"shape {seed}")
    chance = draw.random()
    members, shards = next(sizes for limit, *sizes in SIZES if chance < limit)
    total = _between(draw, *shards)
    scenario = Scenario(
        DRAWN,
        members=_between(draw, *members),
        shards=_streams(draw, total),
        aggregated=draw.choice((0.0, 0.0, 0.1, 0.3)),
        assignor=draw.choice(("range", "load")),
        commit=draw.choice(("auto", "auto", "manual")),
        batches=draw.random() < 0.3,
        start=draw.choice((Start.TRIM_HORIZON, Start.LATEST)),
        mixed=draw.random() < 0.4,
        static_ids=draw.random() < 0.4,
        together=draw.random() < 0.4,
        min_read_interval_seconds=0.2 if total < SLOW_FROM_SHARDS else 2.0,
        config={"max_processing_seconds": 20.0} if draw.random() < 0.3 else {},
        labels=draw.choice((0, 0, 0, 2, 3)),
    )
    calls = draw.choice((0, 0, 1, 4)) if scenario.commit == "auto" else 0
    scenario = replace(scenario, concurrency=calls)
    if draw.random() < EXTRA_SHARE:
        scenario = replace(scenario, **_limit(draw, scenario))
    for purpose, extra in EXTRAS.items():
        draw = random.Random(f"{purpose} {seed}")
        if draw.random() < EXTRA_SHARE:
            scenario = replace(scenario, **extra(draw, scenario))
    return scenario


def _max_shards(draw: random.Random, scenario: Scenario) -> dict[str, Any]:
    """Let clients own few shards at most, if that is possible."""
    others = scenario.members - 1
    if scenario.mixed or not others:
        return {}
    limit = math.ceil(draw.choice((1.2, 1.5)) * sum(scenario.shards) / others)
    return {"config": scenario.config | {"max_shards": limit}}


def _fan_out(draw: random.Random, _: Scenario) -> dict[str, Any]:
    """Let clients read by fan-out."""
    return {
        "fan_out": draw.choice((1.0, 0.7, 0.4)),
        "subscription_seconds": draw.choice((300, 60, 20)),
        "faults": WITH_SUBSCRIPTIONS,
    }


def _start(draw: random.Random, _: Scenario) -> dict[str, Any]:
    """Let the group start by time, sometimes before what the streams still hold."""
    ago = draw.choice((60.0, 172_800.0))
    return {"start": Start(type="AT_TIMESTAMP", timestamp=EPOCH - ago)}


# What changes the fields of some drawn groups, by the purpose of its random draw.
EXTRAS: dict[str, Callable[[random.Random, Scenario], dict[str, Any]]] = {
    "max_shards": _max_shards,
    "callbacks": lambda _, __: {"callbacks": True},
    "aggregates of others": lambda _, __: {"odd_aggregates": 0.2},
    "start": _start,
    "fan-out": _fan_out,
    "poison": lambda _, scenario: {"faults": f"{scenario.faults},{POISON}"},
    "strategy": lambda _, scenario: {"faults": f"{scenario.faults},{SWITCHES}"},
}


def _limit(draw: random.Random, scenario: Scenario) -> dict[str, Any]:
    """Give the scenario one limit that fits the size of the group."""
    match draw.choice(("link", "tasks", "apps", "table", "idle", "clocks")):
        case "link":
            size = draw.choice((20_000, 100_000))
            # Even one client alone must be able to read all records faster than they
            # arrive.
            return {
                "record_bytes": size,
                "records_per_second": 10,
                "aggregated": min(scenario.aggregated, 0.1),
                "link_bytes_per_second": size * _between(draw, 60, 2000),
            }
        case "tasks":
            tasks = {"batches": True, "concurrency": 0, "tasks": draw.randint(2, 4)}
            return {"commit": "manual", **tasks}
        case "apps" if sum(scenario.shards) <= 12:
            return {"members": min(scenario.members, 3), "apps": draw.randint(2, 3)}
        case "table":
            units = 20 + scenario.members + sum(scenario.shards) / 4
            return {"table_units_per_second": units}
        case "idle":
            return {"idle": 0.5, "retention_seconds": 120}
    return {"skew_seconds": 0.5}


def _between(draw: random.Random, low: int, high: int) -> int:
    """Draw a size between two bounds, with a logarithmic distribution."""
    return round(low * math.pow(high / low, draw.random()))


def _streams(draw: random.Random, total: int) -> tuple[int, ...]:
    """Distribute the shards over one to four streams."""
    cuts = draw.sample(range(1, total), min(total - 1, draw.choice((0, 0, 1, 2, 3))))
    ends = [0, *sorted(cuts), total]
    return tuple(high - low for low, high in pairwise(ends))
