"""Groups to simulate: some by name, others drawn from a seed."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise

from kinesumer.model.streams import Start
from kinesumer.simulation.world import Shape

DRAWN, EACH, LIMITS = "drawn", "each", "limits"
"""Not one shape: another for each seed; those below in turns; those with limits."""
NAMED = (
    Shape("plain"),
    Shape("alone", members=1, shards=(4,)),
    Shape(
        "sticky",
        members=5,
        shards=(6, 4),
        assignor="sticky",
        static_ids=True,
        aggregated=0.1,
    ),
    Shape("labels", members=6, shards=(10, 5), labels=2, assignor="sticky"),
    Shape("manual", shards=(4, 4), commit="manual", aggregated=0.3),
    Shape("batches", members=4, shards=(1, 1, 1), batches=True, together=True),
    Shape("latest", shards=(4, 2), start=Start.LATEST, static_ids=True, together=True),
    Shape("mixed", members=4, shards=(3, 3, 2), mixed=True),
)
CALM = Shape(
    "calm",
    shards=(4,),
    records_per_second=0.2,
    min_read_interval_seconds=5.0,
    faults_per_minute=1 / 360,
)
"""As in reality: a fault every six hours, little traffic; for simulated weeks."""
LIMITED = (
    Shape(
        "link",
        members=1,
        shards=(14,),
        records_per_second=10,
        record_bytes=100_000,
        link_bytes_per_second=3_000_000,
        min_read_interval_seconds=1.0,
        faults="kinesis_down:0.4:300,narrow:0.4:60,join:0.1,leave:0.1",
    ),
    Shape(
        "room",
        members=1,
        shards=(40,),
        records_per_second=20,
        record_bytes=100_000,
        link_bytes_per_second=300_000_000,
        min_read_interval_seconds=1.0,
        faults="kinesis_down:0.4:300,slow:0.4:30,join:0.1,leave:0.1",
    ),
    Shape(
        "blocked",
        members=3,
        shards=(6,),
        records_per_second=4,
        faults="block:1:60,block_each:1:60,join:0.5,leave:0.5,slow:0.5",
    ),
    Shape(
        "tasks",
        members=2,
        shards=(4,),
        commit="manual",
        batches=True,
        tasks=3,
        faults="join:1,leave:1",
    ),
    Shape("apps", members=2, shards=(3, 2), apps=3, faults="foreign,join:0.5,leave:1"),
    Shape(
        "table",
        shards=(400,),
        records_per_second=5,
        min_read_interval_seconds=20.0,
        table_units_per_second=30,
        faults="busy_table:1,join:0.5,leave:0.5,crash:0.5,split:0.5,merge:0.5",
    ),
    Shape(
        "fleet",
        members=100,
        shards=(1500, 500),
        records_per_second=10,
        min_read_interval_seconds=60.0,
        table_units_per_second=1000,
        together=True,
        faults="crash:0.5,join:0.5,leave:0.5,busy_table:0.3:20,store_down:0.2:20",
    ),
    Shape(
        "idle",
        shards=(6, 2),
        records_per_second=2,
        min_read_interval_seconds=1.0,
        idle=0.5,
        retention_seconds=120,
        faults="crash:0.3,join:0.2,leave:0.3,stall:0.2,iterators:0.2,split:0.1",
    ),
    Shape(
        "clocks",
        shards=(4, 2),
        start=Start.LATEST,
        together=True,
        skew_seconds=0.5,
        faults="skew:1,seek:4,crash:1,join:1,leave:1,refresh:1,split:0.5,merge:0.5,drift:0.5",
    ),
)
"""Groups at the limits of links, tables, streams, processes and clocks."""
SIZES = ((0.9, (2, 6), (1, 16)), (0.99, (3, 20), (4, 60)), (1.0, (5, 50), (20, 500)))
"""Most drawn groups are small, since large ones take a hundred times as long: up to
which draw, members from … to, shards from … to."""
SLOW_FROM_SHARDS = 30
LIMITED_SHARE = 0.4
"""Of the drawn groups, how many have a limit."""


def shape_for(name: str, seed: int) -> Shape:
    """Return the shape of a seed. Raises KeyError."""
    if name == DRAWN:
        return draw_shape(seed)
    if name == EACH:
        return NAMED[seed % len(NAMED)]
    if name == LIMITS:
        return LIMITED[seed % len(LIMITED)]
    return {shape.name: shape for shape in (*NAMED, *LIMITED, CALM)}[name]


def draw_shape(seed: int) -> Shape:
    """Return the group that belongs to a seed."""
    draw = random.Random(f"shape {seed}")
    chance = draw.random()
    members, shards = next(sizes for most, *sizes in SIZES if chance < most)
    total = _between(draw, *shards)
    shape = Shape(
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
    shape = replace(
        shape,
        config={"max_processing_seconds": 20.0} if stuck_soon else {},
        labels=draw.choice((0, 0, 0, 2, 3)),
    )
    calls = draw.choice((0, 0, 1, 4)) if shape.commit == "auto" else 0
    shape = replace(shape, concurrency=calls)
    if draw.random() < LIMITED_SHARE:
        return _limited(draw, shape)
    return shape


def _limited(draw: random.Random, shape: Shape) -> Shape:
    """Give a group a limit, in proportion to its size."""
    shards = sum(shape.shards)
    match draw.choice(("link", "tasks", "apps", "table", "idle", "clocks")):
        case "link":
            size = draw.choice((20_000, 100_000))
            # A client may have to carry everything, a few times faster than it comes.
            return replace(
                shape,
                record_bytes=size,
                records_per_second=10,
                aggregated=min(shape.aggregated, 0.1),
                link_bytes_per_second=size * _between(draw, 60, 2000),
            )
        case "tasks":
            tasks = draw.randint(2, 4)
            return replace(
                shape, commit="manual", batches=True, concurrency=0, tasks=tasks
            )
        case "apps" if shards <= 12:
            apps = draw.randint(2, 3)
            return replace(shape, members=min(shape.members, 3), apps=apps)
        case "table":
            units = 20 + shape.members + shards / 4
            return replace(shape, table_units_per_second=units)
        case "idle":
            return replace(shape, idle=0.5, retention_seconds=120)
    return replace(shape, skew_seconds=0.5)


def _between(draw: random.Random, least: int, most: int) -> int:
    """Draw a size: as many small ones as large ones, in orders of magnitude."""
    return round(least * math.pow(most / least, draw.random()))


def _streams(draw: random.Random, total: int) -> tuple[int, ...]:
    """Share shards out to one to four streams."""
    cuts = draw.sample(range(1, total), min(total - 1, draw.choice((0, 0, 1, 2, 3))))
    ends = [0, *sorted(cuts), total]
    return tuple(high - low for low, high in pairwise(ends))
