"""Checks after the faults: plan, ownership, and that every record is done."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kinesumer.core.assignment import Member, assign_range
from kinesumer.model.streams import HASH_KEYS
from kinesumer.simulation.invariants.membership import parse_ranges
from kinesumer.simulation.trace import row_position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.model.rows import Row
    from kinesumer.simulation.client import Process
    from kinesumer.simulation.simulation import Simulation
    from kinesumer.simulation.trace import ShardTrace

Interval = tuple[int, int]


def check_settled(sim: Simulation) -> None:
    """Check I12, L2, L3 and L6 for a group without faults. Raises ViolationError."""
    check_plan(sim)
    for name in sim.streams:
        _check_done(sim, name)
    raise_violation(sim)


def check_plan(sim: Simulation) -> None:
    """Check I12 and L2 for a group without faults. Raises ViolationError."""
    members = _check_members(sim)
    raise_violation(sim)
    _check_sizes(sim, members)
    for name in sim.streams:
        ranges = _ranges(sim, name, members)
        _check_tiling(sim, name, ranges)
        _check_owners(sim, name, ranges)
    raise_violation(sim)


def settling_state(sim: Simulation) -> object:
    """Return what changes while a group settles: plan, owners, ends, and progress."""
    shards = (
        (row["sk"], row.get("owner"), row["ended"], closed and row_position(row))
        for name in sim.streams
        for shard_id, made in sim.kinesis.stream(name).shards.items()
        if (row := sim.checker.shards[sim.arn(name), shard_id].row) is not None
        for closed in (made.closed,)
    )
    plans = sim.store.rows(f"leader#{sim.scenario.app}")
    return [row["plan_version"] for row in plans], list(shards)


def raise_violation(sim: Simulation) -> None:
    """Raise the first violation, if there is one. Raises ViolationError."""
    if sim.loop.halted is not None:
        raise sim.loop.halted


def _check_members(sim: Simulation) -> dict[str, tuple[Process, Row]]:
    """Check that live processes and live member rows agree (L2)."""
    rows = {
        str(row["sk"]): row
        for row in sim.store.rows(f"member#{sim.scenario.app}")
        if row.get("dead") is not True
    }
    living = {process.client_id: process for process in sim.living}
    if rows.keys() != living.keys():
        sim.checker.fail(
            "L2", f"members are {sorted(rows)}, alive are {sorted(living)}"
        )
        return {}
    for client_id, row in rows.items():
        machine = sim.checker.leases.machines[str(row["session"])]
        if machine is not living[client_id].machine:
            sim.checker.fail("L2", f"{client_id} is registered by a dead process")
    return {client_id: (living[client_id], rows[client_id]) for client_id in rows}


def _ranges(
    sim: Simulation, name: str, members: dict[str, tuple[Process, Row]]
) -> list[tuple[Interval, str]]:
    """Return (interval, session) of a stream, sorted; only askers may have any."""
    arn = sim.arn(name)
    found: list[tuple[Interval, str]] = []
    for client_id, (process, row) in members.items():
        asked = frozenset(sim.arn(name) for name in process.streams)
        if row["streams"] != asked:
            sim.checker.fail(
                "L2", f"{client_id} asks for {row['streams']}, not {asked}"
            )
        session = str(row["session"])
        parts = parse_ranges(row)
        found += [((first, last), session) for of, first, last in parts if of == arn]
    return sorted(found)


def _is_consumed(sim: Simulation, name: str) -> bool:
    return any(name in process.streams for process in sim.living)


def _check_tiling(
    sim: Simulation, name: str, ranges: list[tuple[Interval, str]]
) -> None:
    """Check that ranges tile the hash space, one per member with ``range`` (I12)."""
    expected = 0
    for (first, last), session in ranges:
        if first != expected:
            sim.checker.fail("I12", f"{name}: {session} begins at {first:x}")
        expected = last + 1
    if expected != HASH_KEYS and _is_consumed(sim, name):
        sim.checker.fail("I12", f"{name}: no member has {expected:x} and up")
    sessions = [session for _, session in ranges]
    if sim.config.assignor == "range" and len(sessions) != len({*sessions}):
        sim.checker.fail("I12", f"{name}: a member's range isn't contiguous")


def _check_sizes(sim: Simulation, members: dict[str, tuple[Process, Row]]) -> None:
    """Check that members have equal numbers of shards, within a tenth (I12).

    Reshards change sizes and no plan; the leader makes another where a share is more
    than one shard and a tenth off.
    """
    opened = {
        sim.arn(name): [made.shard.first_hash for made in sim.kinesis.stream(name).open]
        for name in sim.streams
    }
    sizes = sorted(_size(row, opened) for _, row in members.values())
    asked = [(client_id, p.streams) for client_id, (p, _) in sorted(members.items())]
    even = _even_sizes(
        {c: frozenset(map(sim.arn, names)) for c, names in asked}, opened
    )
    if any(abs(a - b) > max(1, b // 10) for a, b in zip(sizes, even, strict=True)):
        sim.checker.fail("I12", f"members have {sizes} shards, even would be {even}")
    if len({names for _, names in asked}) == 1:
        _check_labels(sim, [row for _, row in members.values()], opened)


def _check_labels(
    sim: Simulation, rows: list[Row], opened: dict[str, list[int]]
) -> None:
    """Check the share of each label, if all members consume the same (I12)."""
    labels = Counter(str(row.get("label", "")) for row in rows)
    sizes = Counter[str]()
    for row in rows:
        sizes[str(row.get("label", ""))] += _size(row, opened)
    for label, count in labels.items():
        share = sizes.total() * count / len(rows)
        if len(labels) > 1 and abs(sizes[label] - share) >= 1 + max(1, share // 10):
            sim.checker.fail(
                "I12", f"label {label!r} has {sizes[label]} shards, not {share:g}"
            )


def _size(row: Row, opened: dict[str, list[int]]) -> int:
    """Return the number of open shards in the range of a row."""
    return sum(
        first <= place <= last
        for arn, first, last in parse_ranges(row)
        for place in opened[arn]
    )


def _even_sizes(
    asked: dict[str, frozenset[str]], opened: dict[str, list[int]]
) -> list[int]:
    """Return the most even sizes there are, in order.

    Where members ask for different streams this is the assignors' own arithmetic: how
    even it is, their tests try by brute force.
    """
    if len({*asked.values()}) > 1:
        members = [Member(client_id, 1, arns) for client_id, arns in asked.items()]
        plan = assign_range(members, opened)
        return sorted(
            sum(
                part.first <= place <= part.last
                for part in parts
                for place in opened[part.stream_arn]
            )
            for parts in plan.values()
        )
    arns = next(iter(asked.values()), frozenset[str]())
    each, more = divmod(sum(len(opened[arn]) for arn in arns), max(1, len(asked)))
    return sorted(each + (place < more) for place in range(len(asked)))


def _check_owners(
    sim: Simulation, name: str, ranges: list[tuple[Interval, str]]
) -> None:
    """Check that the member in the plan owns each open shard (L2)."""
    arn = sim.arn(name)
    for shard in sim.kinesis.stream(name).shards.values():
        trace = sim.checker.shards[arn, shard.shard.shard_id]
        row = trace.row
        if not _is_consumed(sim, name):
            continue
        if shard.closed:
            if row is not None and not row["ended"] and not _has_expired(trace):
                sim.checker.fail("L2", f"{name}/{trace.shard_id} hasn't ended: {row}")
            continue
        place = shard.shard.first_hash
        at = (s for (first, last), s in ranges if first <= place <= last)
        planned = next(at, None)
        owner = row.get("owner") if row else None
        if owner != planned:
            sim.checker.fail(
                "L2",
                f"{name}/{trace.shard_id} is planned for {planned}, "
                f"but belongs to {owner}: {row}",
            )


def count_waiting(sim: Simulation) -> int:
    """Return the number of records from the first undone one of each shard on."""
    return sum(undone(sim, name) for name in sim.streams)


def undone(sim: Simulation, name: str) -> int:
    """Return the number of records that ``count_waiting`` counts in one stream."""
    return sum(len(trace.log) - first for trace, first in _undone(sim, name))


def _check_done(sim: Simulation, name: str) -> None:
    """Check that every record from the start on is done or has expired (L3, L6)."""
    for trace, first in _undone(sim, name):
        sim.checker.fail(
            "L3",
            f"{name}/{trace.shard_id}: record {first} of {len(trace.log)} "
            f"is never done: {trace.row}",
        )


def _undone(sim: Simulation, name: str) -> Iterator[tuple[ShardTrace, int]]:
    """Yield each shard with records to do, and the index of the first."""
    if not _is_consumed(sim, name):
        return
    arn = sim.arn(name)
    key = "stream#" + arn
    rows = sim.store.rows(f"group#{sim.scenario.app}")
    row = next(row for row in rows if row["sk"] == key)
    for (stream, _), trace in sim.checker.shards.items():
        if stream == arn:
            first = trace.seek_index
            if first is None:
                first = trace.since(str(row["start"]))
            undone = trace.first_undone(first, len(trace.log))
            if undone is not None:
                yield trace, undone


def _has_expired(trace: ShardTrace) -> bool:
    return trace.expired == len(trace.log)
