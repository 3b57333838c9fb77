"""Check the plan, the owners and the done records after the faults have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from kinesumer.config import Config
from kinesumer.core.assignment import Member, assign_range
from kinesumer.model.rows import Row
from kinesumer.model.streams import HASH_KEYS
from kinesumer.testing.simulation.client import Process
from kinesumer.testing.simulation.invariants.base import ShardTrace, row_position
from kinesumer.testing.simulation.invariants.writes import Part, parse_ranges
from kinesumer.testing.simulation.simulation import Simulation

# How long a shard of a KCL fleet waits for another worker at most: until a KCL worker
# has seen no renewal for three failover times. It scans once in two of them.
FLEET_SECONDS = 8 * Config().kcl_failover_seconds

Members = dict[str, tuple[Process, Row]]
# First and last hash key, and the session that owns the range.
Range = tuple[int, int, str]


def check_settled(sim: Simulation) -> None:
    """Check a settled group's plan, owners, and done records (I12, L2, L3, L6).

    Raises ViolationError.
    """
    check_plan(sim)
    for name, trace, first in _undone(sim):
        text = f"record {first} of {len(trace.log)} is never done"
        sim.checker.fail("L3", f"{name}/{trace.shard_id}: {text}: {trace.row}")
    raise_violation(sim)


def check_plan(sim: Simulation) -> None:
    """Check the plan and the owners of a group that has settled (I12, L2).

    Raises ViolationError.
    """
    if sim.scenario.kcl_fleet:
        _check_workers(sim)
        if not sim.members:  # no client is left to declare others dead
            return
    members = _check_members(sim)
    raise_violation(sim)
    _check_sizes(sim, members)
    for name in sim.streams:
        ranges = _ranges(sim, name, members)
        if sim.is_consumed(name):
            _check_tiling(sim, name, ranges)
            if not sim.scenario.kcl_fleet:
                _check_owners(sim, name, ranges)
    raise_violation(sim)


def settling_state(sim: Simulation) -> object:
    """Return a value that changes until a group has settled.

    It contains the version of the plan, the owner and the end of each shard, and the
    position in each closed shard.
    """
    shards = [
        (row["sk"], row.get("owner"), row["ended"], shard.closed and row_position(row))
        for name in sim.streams
        for shard_id, shard in sim.kinesis.stream(name).shards.items()
        if (row := sim.checker.shards[sim.arn(name), shard_id].row) is not None
    ]
    plans = sim.store.rows(f"leader#{sim.scenario.app}")
    return [row["plan_version"] for row in plans], shards


def raise_violation(sim: Simulation) -> None:
    """Raise the violation that was found first, if there is any."""
    if sim.loop.halted is not None:
        raise sim.loop.halted


def _check_workers(sim: Simulation) -> None:
    """Check that living workers of a KCL fleet have the open shards (L2)."""
    living = {process.client_id for process in sim.living}
    for name in sim.streams:
        for shard in sim.kinesis.stream(name).shards.values():
            row = sim.checker.shards[sim.arn(name), shard.shard.shard_id].row
            text = f"{name}/{shard.shard.shard_id}"
            if shard.closed:
                if row is not None and not row["ended"]:
                    sim.checker.fail("L2", f"{text} hasn't ended: {row}")
            elif row is None or row.get("owner_id") not in living:
                sim.checker.fail("L2", f"{text} has no living owner: {row}")
    raise_violation(sim)


def _check_members(sim: Simulation) -> Members:
    """Check that there is a living process for each living member's row (L2)."""
    rows = {
        str(row["sk"]): row
        for row in sim.store.rows(f"member#{sim.scenario.app}")
        if row.get("dead") is not True
    }
    living = {process.client_id: process for process in sim.members}
    if rows.keys() != living.keys():
        text = f"members are {sorted(rows)}, alive are {sorted(living)}"
        sim.checker.fail("L2", text)
        return {}
    for client_id, row in rows.items():
        machine = sim.checker.leases.machines[str(row["session"])]
        if machine is not living[client_id].machine:
            sim.checker.fail("L2", f"{client_id} is registered by a dead process")
    return {client_id: (living[client_id], rows[client_id]) for client_id in rows}


def _ranges(sim: Simulation, name: str, members: Members) -> list[Range]:
    """Return a stream's planned ranges, sorted. Check the requested streams (L2)."""
    arn = sim.arn(name)
    ranges: list[Range] = []
    for client_id, (process, row) in members.items():
        requested = frozenset(sim.arn(name) for name in process.streams)
        if row["streams"] != requested:
            text = f"{client_id} asks for {row['streams']}, not {requested}"
            sim.checker.fail("L2", text)
        session = str(row["session"])
        for of, first, last in parse_ranges(row):
            if of == arn:
                ranges.append((first, last, session))
    return sorted(ranges)


def _check_tiling(sim: Simulation, name: str, ranges: list[Range]) -> None:
    """Check that ranges, one of each member, cover each hash key once (I12)."""
    expected = 0
    for first, last, session in ranges:
        if first != expected:
            sim.checker.fail("I12", f"{name}: {session} begins at {first:x}")
        expected = last + 1
    if expected != HASH_KEYS:
        sim.checker.fail("I12", f"{name}: no member has {expected:x} and up")
    sessions = [session for *_, session in ranges]
    if len(sessions) != len({*sessions}):
        sim.checker.fail("I12", f"{name}: a member's range isn't contiguous")


def _check_sizes(sim: Simulation, members: Members) -> None:
    """Check that members have about equal numbers of shards (I12).

    A number may be wrong by one shard or by a tenth, whichever is more: after a
    reshard, the leader makes a new plan only if a number is worse.
    """
    if sim.config.assignor == "load":
        return  # the numbers of shards may differ
    opened = {
        sim.arn(name): sorted(
            sim.first_hash(name, each.shard) for each in sim.kinesis.stream(name).open
        )
        for name in sim.streams
    }
    sizes = sorted(_count(parse_ranges(row), opened) for _, row in members.values())
    requested = {
        client_id: frozenset(map(sim.arn, process.streams))
        for client_id, (process, _) in sorted(members.items())
    }
    even = _even_sizes(requested, opened, sim.config.max_shards)
    if any(abs(a - b) > max(1, b // 10) for a, b in zip(sizes, even, strict=True)):
        sim.checker.fail("I12", f"members have {sizes} shards, even would be {even}")
    # With different streams, equal shares for all labels may be impossible.
    if len({*requested.values()}) == 1:
        _check_labels(sim, [row for _, row in members.values()], opened)


def _check_labels(
    sim: Simulation, rows: list[Row], opened: dict[str, list[int]]
) -> None:
    """Check that the members of each label have their share of the shards (I12)."""
    labels = Counter(str(row.get("label", "")) for row in rows)
    sizes = Counter[str]()
    for row in rows:
        sizes[str(row.get("label", ""))] += _count(parse_ranges(row), opened)
    for label, count in labels.items():
        share = sizes.total() * count / len(rows)
        if len(labels) > 1 and abs(sizes[label] - share) >= 1 + max(1, share // 10):
            text = f"label {label!r} has {sizes[label]} shards, not {share:g}"
            sim.checker.fail("I12", text)


def _count(parts: Iterable[Part], opened: dict[str, list[int]]) -> int:
    """Return the number of open shards in the given ranges."""
    return sum(
        first <= key <= last for arn, first, last in parts for key in opened[arn]
    )


def _even_sizes(
    requested: dict[str, frozenset[str]],
    opened: dict[str, list[int]],
    max_shards: int | None,
) -> list[int]:
    """Return the numbers of shards that members have in the most even plan, sorted.

    If members consume different streams, use the assignor's own plan. The tests of the
    assignor compare its plans with the result of brute force.
    """
    if len({*requested.values()}) > 1:
        members = [
            Member(client_id, 1, arns, max_shards=max_shards)
            for client_id, arns in requested.items()
        ]
        plan = assign_range(members, opened)
        return sorted(_count(parts, opened) for parts in plan.values())
    arns = next(iter(requested.values()), frozenset[str]())
    shards = sum(len(opened[arn]) for arn in arns)
    each, more = divmod(shards, max(1, len(requested)))
    return sorted(each + (index < more) for index in range(len(requested)))


def _check_owners(sim: Simulation, name: str, ranges: list[Range]) -> None:
    """Check that open shards have planned owners and closed ones have ended (L2)."""
    arn = sim.arn(name)
    for shard in sim.kinesis.stream(name).shards.values():
        trace = sim.checker.shards[arn, shard.shard.shard_id]
        row, text = trace.row, f"{name}/{trace.shard_id}"
        if shard.closed:
            if row is not None and not row["ended"] and not trace.has_expired:
                sim.checker.fail("L2", f"{text} hasn't ended: {row}")
            continue
        key = sim.first_hash(name, shard.shard)
        planned = next((s for first, last, s in ranges if first <= key <= last), None)
        owner = row.get("owner") if row else None
        if owner != planned:
            text = f"{text} is planned for {planned}, but belongs to {owner}"
            sim.checker.fail("L2", f"{text}: {row}")


def count_waiting(sim: Simulation) -> int:
    """Count each shard's first undone record and all records after it."""
    return sum(len(trace.log) - first for _, trace, first in _undone(sim))


def _undone(sim: Simulation) -> Iterator[tuple[str, ShardTrace, int]]:
    """Yield the streams' shards with undone records, and the index of the first one."""
    names = {sim.arn(name): name for name in sim.streams if sim.is_consumed(name)}
    for (arn, _), trace in sim.checker.shards.items():
        if arn in names:
            # If no client has synced the stream yet, all of its records are undone.
            first = first_due(sim, arn, trace) or 0
            undone = trace.first_undone(first, len(trace.log))
            if undone is not None:
                yield names[arn], trace, undone


def fleet_seconds(sim: Simulation) -> float:
    """Return how long records of a KCL fleet wait at most for workers, else 0.

    The shards of one generation after the other wait for a worker's scan.
    """
    if not sim.scenario.kcl_fleet:
        return 0.0
    depths: dict[tuple[str, str], int] = {}
    for (arn, shard_id), trace in sim.checker.shards.items():  # parents come first
        if trace.row is None or not trace.row["ended"]:
            before = [depths.get((arn, parent), 0) for parent in trace.parents]
            depths[arn, shard_id] = 1 + max(before, default=0)
    return FLEET_SECONDS * (1 + max(depths.values(), default=0) / 2)


def first_due(sim: Simulation, arn: str, trace: ShardTrace) -> int | None:
    """Return the index of the first record of a shard that the app must process."""
    if trace.seek_index is not None or sim.scenario.kcl_fleet:
        return trace.seek_index or 0
    for row in sim.store.rows(f"group#{sim.scenario.app}"):
        if row["sk"] == f"stream#{arn}":
            return trace.since(str(row["start"]))
    return None
