"""The judgement: what was processed, held against what was produced."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.demo.pauses import Limit, Pause, longest, pauses
from kinesumer.demo.settings import MAX_UNCOMMITTED

if TYPE_CHECKING:
    from kinesumer.demo.counts import Ledger, Processed, Produced
    from kinesumer.demo.pauses import Lineage, Place
    from kinesumer.demo.scenario import Event


class Verdict(NamedTuple):
    """What the demo found out."""

    produced: int
    processed: int
    lost: int
    repeated_by_crash: dict[str, int]
    """By client that was killed: records that others processed again."""
    repeated_otherwise: int
    out_of_order: int
    zombies: int
    """Records processed by an owner after a later owner had begun."""
    strangers: int
    """Records that were processed, but never produced, or not there."""
    longest: list[tuple[Limit, Pause]]
    broken: list[str]
    """What must not be, in words; empty if all is well."""


def judge(
    ledger: Ledger,
    parents: Lineage,
    events: list[Event],
    faults: list[str],
) -> Verdict:
    """Return the verdict; ``faults`` are what was found broken along the way."""
    log = _log(ledger.produced)
    seen = _by_shard(ledger.processed)
    lost = [r.number for r in ledger.produced if r.number not in ledger.first_at]
    crashed, bound, otherwise = _repeats(ledger.processed, events)
    out_of_order = sum(_disorder(log.get(place, []), seen[place]) for place in seen)
    out_of_order += _before_parents(seen, parents)
    zombies = sum(_zombies(found) for found in seen.values())
    strangers = _strangers(ledger)
    found = longest(pauses(ledger, seen, parents, events), events)
    broken = [
        *faults,
        *_counted(len(lost), "lost", f" (first: {lost[:5]})"),
        *_counted(otherwise, "processed twice without a crash"),
        *_counted(out_of_order, "processed out of order"),
        *_counted(zombies, "processed by an owner after a later one had begun"),
        *_counted(strangers, "processed that were never produced there"),
        *bound,
        *(
            f"{limit.name}: a pause of {pause.seconds:.1f} s, allowed {limit.allowed:g}"
            for limit, pause in found
            if limit.seconds is not None and pause.seconds > limit.allowed
        ),
    ]
    return Verdict(
        produced=len(ledger.produced),
        processed=len(ledger.first_at),
        lost=len(lost),
        repeated_by_crash=crashed,
        repeated_otherwise=otherwise,
        out_of_order=out_of_order,
        zombies=zombies,
        strangers=strangers,
        longest=found,
        broken=broken,
    )


def _counted(count: int, what: str, more: str = "") -> list[str]:
    return [f"{count:,} records {what}{more}"] if count else []


def _log(produced: list[Produced]) -> dict[Place, list[int]]:
    """Return each shard's numbers in the order in which Kinesis holds them."""
    found: dict[Place, list[Produced]] = defaultdict(list)
    for record in produced:
        found[record.stream, record.shard].append(record)
    return {
        place: [r.number for r in sorted(records, key=lambda r: r.place)]
        for place, records in found.items()
    }


def _by_shard(processed: list[Processed]) -> dict[Place, list[Processed]]:
    found: dict[Place, list[Processed]] = defaultdict(list)
    for entry in sorted(processed, key=lambda entry: entry.at):
        found[entry.stream, entry.shard].append(entry)
    return dict(found)


def _repeats(
    processed: list[Processed], events: list[Event]
) -> tuple[dict[str, int], list[str], int]:
    """Attribute what was processed twice to crashes, as far as they explain it."""
    killed = {event.client: event for event in events if event.kind == "kill"}
    last: dict[int, Processed] = {}
    by_crash: Counter[str] = Counter()
    by_shard: Counter[tuple[str, Place]] = Counter()
    otherwise = 0
    for entry in sorted(processed, key=lambda entry: entry.at):
        before = last.get(entry.number)
        last[entry.number] = entry
        if before is None:
            continue
        crash = killed.get(before.client)
        if crash is None or entry.client == before.client or entry.at < crash.at:
            otherwise += 1
            continue
        by_crash[before.client] += 1
        by_shard[before.client, (entry.stream, entry.shard)] += 1
    bound = [
        f"{count:,} records of one shard processed twice after the crash of {client}, "
        f"allowed {MAX_UNCOMMITTED:,}"
        for (client, _), count in by_shard.items()
        if count > MAX_UNCOMMITTED
    ]
    return dict(by_crash), bound, otherwise


def _disorder(log: list[int], entries: list[Processed]) -> int:
    """Count records that were processed before one that comes before them."""
    places = {number: place for place, number in enumerate(log)}
    count = following = 0
    for entry in entries:
        place = places.get(entry.number)
        if place is None:
            continue
        if place > following:
            count += 1
        following = max(following, place + 1)
    return count


def _before_parents(seen: dict[Place, list[Processed]], parents: Lineage) -> int:
    """Count shards that were begun before their parents were done."""
    return sum(
        entries[0].at < _first_ends(seen.get(parent, []))
        for place, entries in seen.items()
        for parent in parents.get(place, ())
    )


def _first_ends(entries: list[Processed]) -> float:
    """Return when the last record of a shard was processed for the first time."""
    done: dict[int, float] = {}
    for entry in entries:
        done.setdefault(entry.number, entry.at)
    return max(done.values(), default=0.0)


def _zombies(entries: list[Processed]) -> int:
    count = latest = 0
    for entry in entries:
        count += entry.epoch < latest
        latest = max(latest, entry.epoch)
    return count


def _strangers(ledger: Ledger) -> int:
    """Count what nobody produced, or what came from another shard than it went to."""
    put = {record.number: (record.stream, record.shard) for record in ledger.produced}
    return sum(
        put.get(entry.number, None) != (entry.stream, entry.shard)
        and entry.number not in ledger.uncertain
        for entry in ledger.processed
    )
