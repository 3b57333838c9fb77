"""Judge a run by comparing the processed records with the produced ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kinesumer.testing.trial.demo.pauses import (
    NOISE_SECONDS,
    Limit,
    Pause,
    find_pauses,
    longest_pauses,
)
from kinesumer.testing.trial.demo.record_log import MAX_UNCOMMITTED_RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kinesumer.testing.trial.demo.events import (
        Event,
        Parents,
        Processed,
        Produced,
        RecordCounts,
        StreamShard,
    )

S = TypeVar("S")


class Verdict(NamedTuple):
    """The result of a run."""

    produced: int
    processed: int
    lost: int
    # For each killed client, how many of its records other clients processed again.
    repeated_by_crash: dict[str, int]
    repeated_otherwise: int
    out_of_order: int
    # Number of records that a client processed after the shard's next owner had begun.
    by_former_owner: int
    # Number of processed records that were never produced in the shard in question.
    never_produced: int
    longest: list[tuple[Limit, Pause]]
    # A sentence for each violation. The list is empty if there is none.
    faults: list[str]
    # Those of them that say that a pause was too long.
    slow: list[str]


def judge(
    counts: RecordCounts,
    parents: Parents,
    events: list[Event],
    faults: list[str],
) -> Verdict:
    """Return the verdict. ``faults`` are the violations found during the run."""
    produced = _numbers_by_shard(counts.produced)
    processed = _by_shard(counts.processed)
    first_at = counts.first_processed_at
    lost = [r.number for r in counts.produced if r.number not in first_at]
    by_crash, excessive, otherwise = _repeats(counts.processed, events)
    spans = {
        shard: (entries[0].at, _finished_at(entries))
        for shard, entries in processed.items()
    }
    out_of_order = len(early_children(spans, parents)) + sum(
        _out_of_order(produced.get(shard, []), entries)
        for shard, entries in processed.items()
    )
    by_former_owner = sum(_by_former_owner(found) for found in processed.values())
    never_produced = _never_produced(counts)
    longest = longest_pauses(find_pauses(counts, processed, parents, events), events)
    slow = [
        f"{limit.name}: a pause of {pause.seconds:.1f} s, allowed {limit.allowed:g}"
        for limit, pause in longest
        if limit.seconds is not None and pause.seconds > limit.allowed
    ]
    faults = [
        *faults,
        *_fault(len(lost), "lost", f" (first: {lost[:5]})"),
        *_fault(otherwise, "processed twice without a crash"),
        *_fault(out_of_order, "processed out of order"),
        *_fault(by_former_owner, "processed by an owner after a later one had begun"),
        *_fault(never_produced, "processed that were never produced there"),
        *excessive,
        *slow,
    ]
    return Verdict(
        produced=len(counts.produced),
        processed=len(first_at),
        lost=len(lost),
        repeated_by_crash=by_crash,
        repeated_otherwise=otherwise,
        out_of_order=out_of_order,
        by_former_owner=by_former_owner,
        never_produced=never_produced,
        longest=longest,
        faults=faults,
        slow=slow,
    )


def _fault(count: int, what: str, more: str = "") -> list[str]:
    return [f"{count:,} records {what}{more}"] if count else []


def _numbers_by_shard(produced: list[Produced]) -> dict[StreamShard, list[int]]:
    """Return the numbers of each shard's records, in the order of their positions."""
    by_shard: dict[StreamShard, list[Produced]] = defaultdict(list)
    for record in produced:
        by_shard[record.stream, record.shard].append(record)
    return {
        shard: [r.number for r in sorted(records, key=lambda r: r.position)]
        for shard, records in by_shard.items()
    }


def _by_shard(processed: list[Processed]) -> dict[StreamShard, list[Processed]]:
    by_shard: dict[StreamShard, list[Processed]] = defaultdict(list)
    for entry in sorted(processed, key=lambda entry: entry.at):
        by_shard[entry.stream, entry.shard].append(entry)
    return dict(by_shard)


def _repeats(
    processed: list[Processed], events: list[Event]
) -> tuple[dict[str, int], list[str], int]:
    """Count the records that were processed more than once.

    Return the counts by the killed client that explains them, a sentence for each shard
    with too many of them, and the number of repeats that no crash explains.
    """
    killed = {event.client: event for event in events if event.kind == "kill"}
    # A crash explains a repeat only if the killed client was the last that had
    # processed the record.
    last: dict[int, Processed] = {}
    by_crash: Counter[str] = Counter()
    by_shard: Counter[tuple[str, StreamShard]] = Counter()
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
    excessive = [
        f"{count:,} records of one shard processed twice after the crash of {client}, "
        f"allowed {MAX_UNCOMMITTED_RECORDS:,}"
        for (client, _), count in by_shard.items()
        if count > MAX_UNCOMMITTED_RECORDS
    ]
    return dict(by_crash), excessive, otherwise


def _out_of_order(produced: list[int], entries: list[Processed]) -> int:
    """Count records that were processed before an earlier record of their shard."""
    indexes = {number: index for index, number in enumerate(produced)}
    count = expected = 0
    for entry in entries:
        index = indexes.get(entry.number)
        if index is None:
            continue
        if index > expected:
            count += 1
        expected = max(expected, index + 1)
    return count


def early_children(
    spans: Mapping[S, tuple[float, float]], parents: Mapping[S, Iterable[S]]
) -> list[tuple[S, S]]:
    """Return each shard that was begun before a parent was finished, with that parent.

    ``spans`` maps each shard to the times at which it was begun and finished.
    """
    return [
        (shard, parent)
        for shard, (begun, _) in spans.items()
        for parent in parents.get(shard, ())
        if parent in spans and begun < spans[parent][1]
    ]


def _finished_at(entries: list[Processed]) -> float:
    """Return the time by which each record of a shard had been processed once."""
    first_at: dict[int, float] = {}
    for entry in entries:
        first_at.setdefault(entry.number, entry.at)
    return max(first_at.values())


def _by_former_owner(entries: list[Processed]) -> int:
    count = latest = 0
    for entry in entries:
        count += entry.epoch < latest
        latest = max(latest, entry.epoch)
    return count


def _never_produced(counts: RecordCounts) -> int:
    """Count the processed records that were never produced in the shard in question."""
    shards = {
        record.number: (record.stream, record.shard) for record in counts.produced
    }
    return sum(
        shards.get(entry.number) != (entry.stream, entry.shard)
        and entry.number not in counts.uncertain
        for entry in counts.processed
    )


def report_lines(
    verdict: Verdict,
    *,
    aggregates: int,
    regressions: int,
    started: float,
    streams: list[str],
    spark_lines: list[str],
    spark_faults: list[str],
) -> list[str]:
    """Return the lines of the demo's final report."""
    lines = [
        "",
        f"records produced       {verdict.produced:>9,}   "
        f"({aggregates:,} KPL aggregates among them)",
        f"records processed      {verdict.processed:>9,}",
        f"lost                   {verdict.lost:>9,}   must be 0",
    ]
    for client, count in verdict.repeated_by_crash.items():
        lines.append(
            f"processed twice        {count:>9,}   not yet stored when {client} was "
            f"killed; at most {MAX_UNCOMMITTED_RECORDS:,} a shard"
        )
    if not verdict.repeated_by_crash:
        lines.append(f"processed twice        {0:>9,}   by the crash")
    lines += [
        f"  without a crash      {verdict.repeated_otherwise:>9,}   must be 0",
        f"out of order           {verdict.out_of_order:>9,}   must be 0",
        f"by a former owner      {verdict.by_former_owner:>9,}   must be 0",
        f"never produced         {verdict.never_produced:>9,}   must be 0",
        f"checkpoints moved back {regressions:>9,}   must be 0",
        *spark_lines,
        "",
        f"longest pauses         (bounds allow {NOISE_SECONDS:g} s more for noise: "
        "all processes share this machine)",
    ]
    for limit, pause in verdict.longest:
        allowed = "" if limit.seconds is None else f"at most {limit.seconds:g} s"
        stream, shard = pause.shard
        where = f"{streams[stream]} shard {shard}, from {pause.start - started:.1f} s"
        lines.append(f"  {pause.seconds:6.2f} s  {allowed:>15}  {limit.name} ({where})")
    lines.append("")
    if faults := [*verdict.faults, *spark_faults]:
        return [*lines, "NOT GOOD:", *(f"  - {text}" for text in faults)]
    return [*lines, "GOOD: nothing was lost, and every bound was kept."]
