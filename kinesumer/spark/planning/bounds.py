"""Computes where a query begins in a stream, and where a bounded read ends.

A streaming query computes this only once, since Spark logs its first offset.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kinesumer.core.batch_ranges import Pair
from kinesumer.core.lineage import ancestors
from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import (
    BEGINNING,
    END,
    SEEN_SLACK_SECONDS,
    After,
    At,
    End,
    Offset,
    Positions,
    ShardPosition,
    StreamOffset,
)
from kinesumer.model.streams import Shard, Start, StreamInfo, stream_name
from kinesumer.spark.filters import PushedFilters
from kinesumer.spark.planning.search import last_position
from kinesumer.spark.process import PLAN_RETRIES, for_each

if TYPE_CHECKING:
    from kinesumer.spark.planning.stream_state import StreamState


def first_offset(stream: StreamState, starting: Start | StreamOffset) -> StreamOffset:
    """Return the positions at which a query begins in a stream.

    The stream must have listed its shards before it was described. Then all records
    after the description go to shards that were open in the listing, or to their
    descendants. Raises ConfigurationError for positions that can't be used. A start
    that is older than what the stream still holds is reported as data loss.
    """
    info, shards = stream.info, stream.shards
    if isinstance(starting, StreamOffset):
        positions = _from_positions(info, shards, starting)
    else:
        positions = _from_start(info, shards, starting)
    _report_expired_starts(stream, starting)
    return StreamOffset(info.created_at, positions, info.now, positions)


def _report_expired_starts(stream: StreamState, starting: Start | StreamOffset) -> None:
    positions: Positions = (
        {"": starting} if isinstance(starting, Start) else starting.shards
    )
    for shard_id, start in positions.items():
        since = start.timestamp if isinstance(start, Start) else None
        if since is not None and (reason := stream.info.expired_start(since)):
            stream.report_loss(shard_id, start, reason)


def positions_in(positions: Offset, stream: StreamState) -> StreamOffset | None:
    """Return the user's positions in a stream, which have its name or ARN as key."""
    keys = (stream.arn, stream.requested.name, stream_name(stream.arn))
    return next((positions[key] for key in keys if key in positions), None)


def require_known_streams(
    option: str, positions: Start | Offset | None, streams: Iterable[StreamState]
) -> None:
    """Raise ConfigurationError for positions of streams that the query does not read.

    Without this check, a stream whose name is misspelled would begin at LATEST.
    """
    if not isinstance(positions, dict):
        return
    names = {stream.arn: stream.requested.name for stream in streams}
    known = {*names, *names.values(), *map(stream_name, names)}
    for name in positions:
        arns = [arn for arn in names if stream_name(arn) == name]
        if len(arns) > 1:
            raise ConfigurationError(
                f"option {option} names {name}, which may be {' or '.join(arns)}: use "
                "ARNs"
            )
    unknown = sorted(positions.keys() - known)
    if unknown:
        raise ConfigurationError(
            f"option {option} names {', '.join(unknown)}, which the query doesn't "
            f"read; name one of {', '.join(names.values())}"
        )


def _require_known_shards(
    option: str, info: StreamInfo, listed: Container[str], positions: StreamOffset
) -> None:
    """Raise ConfigurationError for positions of a recreated stream or unlisted shards.

    Unlisted shards are allowed if the position in them is an End.
    """
    if positions.created_at and positions.created_at != info.created_at:
        raise ConfigurationError(
            f"{option}: stream {info.arn} was recreated after the positions "
            "were taken; remove its positions"
        )
    unknown = [
        shard_id
        for shard_id, position in positions.shards.items()
        if shard_id not in listed and not isinstance(position, End)
    ]
    if unknown:
        raise ConfigurationError(
            f"{option}: stream {info.arn} has no shard {', '.join(unknown)}; "
            "remove it, as it has expired or belongs to another stream"
        )


def _from_start(
    info: StreamInfo, shards: Sequence[Shard], start: Start
) -> dict[str, ShardPosition]:
    if start.type == "LATEST":
        now = Start(type="AT_TIMESTAMP", timestamp=info.now)
        ended = End(info.now)
        return {s.shard_id: ended if s.closed else now for s in shards}
    if start.timestamp is not None:
        if start.timestamp > info.now + SEEN_SLACK_SECONDS:
            raise ConfigurationError(
                f"startingPosition of stream {info.arn} must not be a time in the "
                "future"
            )
        if start.timestamp < info.now - info.retention_hours * 3600:
            start = BEGINNING
    return {shard.shard_id: start for shard in shards}


def _from_positions(
    info: StreamInfo, shards: Sequence[Shard], requested: StreamOffset
) -> dict[str, ShardPosition]:
    """Return the positions at which a query begins, from those that the user gave.

    Ancestors of shards with a position count as read. Shards that descend from none of
    them are read from their beginning.
    """
    parents = _parents(shards)
    _require_known_shards("startingPosition", info, parents, requested)
    read = ancestors(requested.shards, parents)
    positions: dict[str, ShardPosition] = {}
    for shard_id in parents:
        position = requested.shards.get(shard_id)
        if (
            isinstance(position, After)
            and position.seen > info.now + SEEN_SLACK_SECONDS
        ):
            raise ConfigurationError(
                f'startingPosition of stream {info.arn}, {shard_id}: "seen" must '
                "not be a time in the future"
            )
        if isinstance(position, End) or (position is None and shard_id in read):
            positions[shard_id] = End(info.now)
        elif position is not None:
            positions[shard_id] = position
        elif ancestors([shard_id], parents).isdisjoint(requested.shards):
            positions[shard_id] = BEGINNING
    return positions


async def bounds(
    stream: StreamState,
    first: StreamOffset,
    ending: Start | StreamOffset | None,
    pushed: PushedFilters,
) -> dict[str, Pair]:
    """Return where a bounded read begins and ends in each shard.

    Shards without records in between are omitted, and so are those that the pushed
    filters exclude. ``ending`` is a time (exclusive) or
    positions (inclusive). If it is None, all existing records are read. Parents and
    their children are read at the same time, so only the records of one shard are in
    order.
    """
    if isinstance(ending, StreamOffset):
        listed = _parents(stream.shards)
        _require_known_shards("endingPosition", stream.info, listed, ending)
    pairs: dict[str, Pair] = {}
    ending = pushed.end(ending, stream.info)

    async def find(shard: Shard) -> None:
        begin = first.shards.get(shard.shard_id, BEGINNING)
        begin = pushed.begin(begin, stream.info)
        if not isinstance(begin, End) and pushed.has_shard(shard.shard_id):
            end = await _end(stream, shard, ending)
            if _has_records(begin, end):
                begin = await _first_record(stream, shard.shard_id, begin)
                pairs[shard.shard_id] = begin, end

    await for_each(stream.shards, find)
    return dict(sorted(pairs.items()))


async def _first_record(
    stream: StreamState, shard_id: str, begin: After | At | Start
) -> ShardPosition:
    """Return an At for the first record after a Start. Return other positions as is."""
    if not isinstance(begin, Start):
        return begin
    probe = stream.probe(shard_id)
    result = await PLAN_RETRIES.call(probe.after, begin, stream.sample())
    if not result.records:
        return begin
    stream.learn(shard_id, result.records)
    first = result.records[0]
    return At(first.position.sequence_number, first.arrived_at)


async def _end(
    stream: StreamState, shard: Shard, ending: Start | StreamOffset | None
) -> ShardPosition:
    if isinstance(ending, StreamOffset):
        if shard.shard_id in ending.shards:
            return ending.shards[shard.shard_id]
        read = ancestors(ending.shards, _parents(stream.shards))
        return END if shard.shard_id in read else BEGINNING
    if ending is None and shard.closed:
        return END
    if ending is None or ending.timestamp is None:
        return await last_position(stream, shard.shard_id)
    return await last_position(stream, shard.shard_id, ending.timestamp)


def _has_records(first: ShardPosition, last: ShardPosition) -> bool:
    if isinstance(last, After):
        if isinstance(first, After):
            return first.position < last.position
        since = first.timestamp if isinstance(first, Start) else None
        return since is None or not last.seen or since <= last.seen
    return not isinstance(last, Start)


def _parents(shards: Sequence[Shard]) -> Mapping[str, Sequence[str]]:
    return {shard.shard_id: shard.parents for shard in shards}
