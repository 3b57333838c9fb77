"""Judge a run by comparing the processed records with the produced ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.testing.trial import oracle
from kinesumer.testing.trial.events import MAX_UNCOMMITTED_RECORDS
from kinesumer.testing.trial.pauses import (
    NOISE_SECONDS,
    Limit,
    Pause,
    find_pauses,
    longest_pauses,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.model.streams import ShardKey
    from kinesumer.testing.trial.events import Event, RecordCounts
    from kinesumer.testing.trial.journal import Handled
    from kinesumer.testing.trial.oracle import Parents


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
    run = oracle.Run(counts.produced, counts.processed, [], parents)
    processed = _by_shard(counts.processed)
    lost = [record.number for record in oracle.lost_records(run)]
    by_crash, excessive, otherwise = _repeats(counts.processed, events)
    early = list(oracle.children_before_parents(run))
    out_of_order = len(early) + len(list(oracle.out_of_order(run)))
    by_former_owner = len(list(oracle.zombies(run)))
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
        processed=len(counts.first_processed_at),
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


def _by_shard(processed: list[Handled]) -> dict[ShardKey, list[Handled]]:
    by_shard: dict[ShardKey, list[Handled]] = defaultdict(list)
    for entry in sorted(processed, key=lambda entry: entry.ended):
        by_shard[entry.shard].append(entry)
    return dict(by_shard)


def _repeats(
    processed: list[Handled], events: list[Event]
) -> tuple[dict[str, int], list[str], int]:
    """Count the records that were processed more than once.

    Return the counts by the killed client that explains them, a sentence for each shard
    with too many of them, and the number of repeats that no crash explains.
    """
    killed = {event.client: event for event in events if event.kind == "kill"}
    # A crash explains a repeat only if the killed client was the last that had
    # processed the record.
    last: dict[int, Handled] = {}
    by_crash: Counter[str] = Counter()
    by_shard: Counter[tuple[str, ShardKey]] = Counter()
    otherwise = 0
    for entry in sorted(processed, key=lambda entry: entry.ended):
        before = last.get(entry.number)
        last[entry.number] = entry
        if before is None:
            continue
        crash = killed.get(before.client)
        if crash is None or entry.client == before.client or entry.ended < crash.at:
            otherwise += 1
            continue
        by_crash[before.client] += 1
        by_shard[before.client, entry.shard] += 1
    excessive = [
        f"{count:,} records of one shard processed twice after the crash of {client}, "
        f"allowed {MAX_UNCOMMITTED_RECORDS:,}"
        for (client, _), count in by_shard.items()
        if count > MAX_UNCOMMITTED_RECORDS
    ]
    return dict(by_crash), excessive, otherwise


def _never_produced(counts: RecordCounts) -> int:
    """Count the processed records that were never produced in the shard in question."""
    shards = {record.number: record.shard for record in counts.produced}
    return sum(
        shards.get(entry.number) != entry.shard and entry.number not in counts.uncertain
        for entry in counts.processed
    )


def report_lines(
    verdict: Verdict,
    *,
    aggregates: int,
    regressions: int,
    started: float,
    labels: Mapping[str, str],
    spark_lines: list[str],
    spark_faults: list[str],
) -> list[str]:
    """Return the lines of the final report. ``labels`` are those of the streams."""
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
        where = f"{place(pause.shard, labels)}, from {pause.start - started:.1f} s"
        lines.append(f"  {pause.seconds:6.2f} s  {allowed:>15}  {limit.name} ({where})")
    lines.append("")
    if faults := [*verdict.faults, *spark_faults]:
        return [*lines, "NOT GOOD:", *(f"  - {text}" for text in faults)]
    return [*lines, "GOOD: nothing was lost, and every bound was kept."]


def place(shard: ShardKey, labels: Mapping[str, str]) -> str:
    """Return a shard's stream and number, for messages."""
    return f"{labels[shard.stream_arn]} shard {shard_number(shard.shard_id)}"


def shard_number(shard_id: str) -> int:
    """Return the number in a shard's ID."""
    return int(shard_id.rpartition("-")[2])
