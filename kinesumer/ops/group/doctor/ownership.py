"""Check that rows, plans and owners cover all hash keys, and that shards move."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from kinesumer.config import Config
from kinesumer.core import plan
from kinesumer.core.lineage import ended_but_open, is_complete
from kinesumer.model.rows import ShardRow, StreamRow
from kinesumer.model.streams import HASH_KEYS
from kinesumer.model.table_streams import is_table_stream
from kinesumer.ops.group.doctor.observation import AppObservation
from kinesumer.ops.group.problems import Check, Finding, Severity
from kinesumer.ops.group.snapshot import Snapshot
from kinesumer.ops.group.verify import MISSING, contradictions
from kinesumer.runtime.text import first_three
from kinesumer.wire.rows import hash_text

Part = tuple[int, int]

HASH_SPACE = Check("hash space")
ORPHAN_SHARDS = Check("orphan shards")
HAND_OVERS = Check("hand-overs")


def uncovered_hash_keys(app: AppObservation) -> Iterator[Finding]:
    """Yield findings about gaps in rows, plans or listed shards, and plan overlaps."""
    for stream in app.second.streams:
        arn = stream.arn
        # Another finding reports open shards that are marked as ended.
        wrong = _ended_too_early(arn, app)
        # What is uncovered in both snapshots is what the parts of both leave.
        unended = [row for rows in app.rows(arn) for row in rows if not row.ended]
        lasting = holes(_parts([*unended, *wrong]))
        if stream.baseline and lasting and not is_table_stream(arn):
            yield HASH_SPACE.critical(
                arn,
                f"{_describe(lasting)} are in no unfinished row: their records "
                "aren't read",
                "wait: the leader repairs it at its next listing (30 s); "
                "if this persists, check whether rows were deleted or can't be parsed",
            )
        yield from _unplanned(arn, app)
        observed = app.streams.get(arn)
        if observed is not None and not is_complete(observed.listing):
            yield HASH_SPACE.warning(
                arn,
                "the open shards that Kinesis lists don't tile the hash space",
                "run the doctor again in a minute, because a split or merge may be in "
                "progress; if this persists, check the stream in Kinesis",
            )


def _parts(rows: Iterable[ShardRow]) -> list[Part]:
    return [(row.first_hash, row.last_hash) for row in rows]


def _unplanned(arn: str, app: AppObservation) -> Iterator[Finding]:
    # A plan reaches clients one after the other, so only gaps in both snapshots count.
    first, second = _planned(arn, app.first), _planned(arn, app.second)
    if first is None or second is None:
        return
    # Another check reports the shards that max_shards leaves without a client.
    full = _parts(app.second.unassignable(arn).values())
    if lasting := holes([*first, *second, *full]):
        yield HASH_SPACE.warning(
            arn,
            f"{_describe(lasting)} have been planned for no client for "
            f"{app.seconds:.0f} s",
            "read the leader's log: plans don't reach all clients",
        )
    twice = _overlaps(second)
    if twice and _overlaps(first):
        yield HASH_SPACE.warning(
            arn,
            f"hash keys from {hash_text(twice[0])} on are planned for two clients",
            "read the leader's log; each shard still has one owner",
        )


def _overlaps(parts: list[Part]) -> list[int]:
    return [b for (_, a), (b, _) in pairwise(sorted(parts)) if b <= a]


def _planned(arn: str, snapshot: Snapshot) -> list[Part] | None:
    """Return the planned ranges of a stream; None while a client waits for a plan."""
    members = [m for m in plan.live_clients(snapshot.alive) if arn in m.streams]
    assignable = plan.assignable(members)
    if not assignable or any(member.range is None for member in assignable):
        return None
    return [
        (interval.first, interval.last)
        for member in members
        for interval in member.range or ()
        if interval.stream_arn == arn
    ]


def holes(parts: Iterable[Part]) -> list[Part]:
    """Return the ranges of hash keys that no part covers, in order."""
    result, following = [], 0
    # The empty part after all hash keys ends the last hole.
    for first, last in [*sorted(parts), (HASH_KEYS, HASH_KEYS)]:
        if first > following:
            result.append((following, first - 1))
        following = max(following, last + 1)
    return result


def _describe(parts: list[Part]) -> str:
    share = sum(last - first + 1 for first, last in parts) / HASH_KEYS
    first, last = parts[0]
    return f"hash keys {hash_text(first)} to {hash_text(last)} ({share:.1%} in all)"


def orphan_shards(app: AppObservation) -> Iterator[Finding]:
    """Yield findings about rows without shards, and shards without rows or owners."""
    for stream in app.second.streams:
        observed = app.streams.get(stream.arn)
        if observed is not None and is_complete(observed.listing):
            yield from _unlisted(stream.arn, app)
            yield from _contradicting(stream, app)
        yield from _unowned(stream.arn, app)


def _ended_too_early(arn: str, app: AppObservation) -> list[ShardRow]:
    """Return the rows that both snapshots show as ended, of shards listed as open."""
    observed = app.streams.get(arn)
    if observed is None or not is_complete(observed.listing):
        return []
    listing = observed.listing
    before, after = (ended_but_open(rows, listing) for rows in app.rows(arn))
    keys = {row.key for row in before}
    return [row for row in after if row.key in keys]


def _unlisted(arn: str, app: AppObservation) -> Iterator[Finding]:
    listed = {shard.shard_id for shard in app.streams[arn].listing}
    ids = [
        row.key.shard_id
        for row in app.second.shards[arn]
        if not row.ended and row.key.shard_id not in listed
    ]
    if ids:
        yield ORPHAN_SHARDS.critical(
            arn,
            f"Kinesis no longer lists {first_three(ids)}: their unread records are "
            "older than the retention",
            "nothing for now: the clients that own them end them, and read their "
            "children; raise the stream's retention if this can happen again",
        )


def _contradicting(stream: StreamRow, app: AppObservation) -> Iterator[Finding]:
    arn, listing = stream.arn, app.streams[stream.arn].listing
    before, after = (contradictions(rows, listing) for rows in app.rows(arn))
    shards: dict[tuple[str, str], list[str]] = {}
    for one in set(before).intersection(after):
        # Unparsable rows aren't missing rows; another check reports them.
        if one.text != MISSING or (stream.baseline and not app.second.corrupt):
            shards.setdefault((one.severity, one.text), []).append(one.shard_id)
    for (label, text), ids in sorted(shards.items()):
        severity = Severity[label.upper()]
        advice = "run the doctor again in a minute, then read the leader's log"
        if not app.is_requested(arn):
            severity, advice = Severity.NOTE, "the first client that starts corrects it"
            text += ", and no live client consumes the stream"
        text = f"{first_three(sorted(ids))}: {text}"
        yield Finding(ORPHAN_SHARDS, severity, arn, text, advice)


def _unowned(arn: str, app: AppObservation) -> Iterator[Finding]:
    first, second = app.first.unconsumed(arn), app.second.unconsumed(arn)
    lasting = [key for key in second if key in first]
    if not lasting or not app.second.alive:
        return
    names = first_three(key.shard_id for key in lasting)
    if not app.is_requested(arn):
        yield ORPHAN_SHARDS.warning(
            arn,
            f"{names} have no owner: no live client consumes this stream",
            "name the stream in consume() again; nothing to do if it is no longer "
            "needed",
        )
    elif not any(arn in member.streams for member in app.second.assignable):
        yield ORPHAN_SHARDS.warning(
            arn,
            f"{names} have no owner: all clients that consume the stream are drained, "
            "degraded or leaving",
            "kinesumer drain CLIENT --undo, or start another client",
        )
    elif all(key in app.second.unassignable(arn) for key in lasting):
        yield ORPHAN_SHARDS.critical(
            arn,
            f"{names} have no owner: all clients that consume the stream own their "
            "max_shards",
            "start more clients, or raise max_shards",
        )
    else:
        planned = {app.second.planned.get(key) for key in lasting} - {None}
        owners = first_three(sorted(str(p) for p in planned)) or "no client"
        # A takeover takes less than two leases, even after a crash of the leader.
        is_critical = app.seconds >= 2 * Config().lease_duration_seconds
        yield Finding(
            ORPHAN_SHARDS,
            Severity.CRITICAL if is_critical else Severity.WARNING,
            arn,
            f"{names} have had no living owner for {app.seconds:.0f} s; planned for "
            f"{owners}",
            "after a crash others take over within a lease (8 s): run the doctor "
            "again; if this persists, read the planned client's log, then the leader's",
        )


def stuck_hand_overs(app: AppObservation) -> Iterator[Finding]:
    """Yield findings about shards that were moving or waiting in both snapshots."""
    for stream in app.second.streams:
        yield from _moving(stream.arn, app)
        yield from _waiting(stream.arn, app)


def _lasting(
    arn: str, state: str, app: AppObservation
) -> Iterator[tuple[ShardRow, ShardRow]]:
    """Yield both rows of each shard that has a state in both snapshots."""
    first, second = app.rows(arn)
    before = {row.key: row for row in first}
    for row in second:
        was = before.get(row.key)
        if was is not None and {app.first.state(was), app.second.state(row)} == {state}:
            yield was, row


def _moving(arn: str, app: AppObservation) -> Iterator[Finding]:
    moves: dict[tuple[str, str], list[str]] = {}
    for was, row in _lasting(arn, "moving", app):
        if was.epoch == row.epoch and was.owner == row.owner:
            move = row.owner, app.second.planned[row.key]
            moves.setdefault(move, []).append(row.key.shard_id)
    for (owner, planned), shards in moves.items():
        owner_row = next(m for m in app.second.alive if m.session == owner)
        yield HAND_OVERS.warning(
            arn,
            f"{first_three(shards)} have been moving from {owner_row.client_id} to "
            f"{planned} for {app.seconds:.0f} s",
            f"{owner_row.client_id} is stalled: others take over when it is fenced"
            if app.fleet.is_stalled(owner_row)
            else f"{owner_row.client_id} waits for its handler, for up to its drain "
            "timeout (30 s); read its log if it takes longer",
        )


def _waiting(arn: str, app: AppObservation) -> Iterator[Finding]:
    first, second = (
        {row.key.shard_id for row in rows if not row.ended} for rows in app.rows(arn)
    )
    lasting = [
        row.key.shard_id
        for was, row in _lasting(arn, "waiting", app)
        if not (first & was.parents or second & row.parents)
    ]
    if lasting:
        yield HAND_OVERS.warning(
            arn,
            f"{first_three(lasting)} still wait for parents that are read to their end",
            "wait: after a crash the leader starts them at its next "
            "listing (30 s); if this persists, read the leader's log",
        )


def repeated_claims(app: AppObservation) -> Iterator[Finding]:
    """Yield findings about shards that were claimed more than once meanwhile."""
    for arn in app.second.shards:
        first, second = app.rows(arn)
        before = {row.key: row.epoch for row in first}
        often = [
            row.key.shard_id
            for row in second
            if row.epoch - before.get(row.key, row.epoch) > 1
        ]
        if often:
            yield HAND_OVERS.warning(
                arn,
                f"{first_three(often)}: claimed several times within "
                f"{app.seconds:.0f} s",
                "nothing if an operator has moved positions; otherwise read the log of "
                "the owners for the reason, and run kinesumer verify",
            )
