"""The first offset of a query in a stream. It is computed once, and logged by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.core.lineage import ancestors
from kinesumer.errors import ConfigurationError
from kinesumer.model.streams import Start, stream_name
from kinesumer.spark.offsets.model import BEGINNING, After, End, StreamOffset

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from kinesumer.model.streams import Shard, StreamInfo
    from kinesumer.spark.offsets.model import Offset, ShardPosition

FUTURE_SECONDS = 60.0


def anchor(
    info: StreamInfo, shards: Sequence[Shard], starting: Start | StreamOffset
) -> StreamOffset:
    """Return the offset that a query begins with in a stream.

    ``shards`` must be listed before ``info`` is read: then an open shard has all later
    records. Raises ConfigurationError.
    """
    if isinstance(starting, StreamOffset):
        places = _given(info, shards, starting)
    else:
        places = _by_time(info, shards, starting)
    return StreamOffset(info.created_at, places, info.now, places)


def positions_for(
    positions: Offset, names: Sequence[str], arn: str
) -> StreamOffset | None:
    """Return a user's positions in a stream, which is given by name or ARN."""
    keys = (arn, *names, stream_name(arn))
    return next((positions[key] for key in keys if key in positions), None)


def require_known_streams(
    option: str, positions: Offset, streams: Iterable[tuple[str, str]]
) -> None:
    """Raise ConfigurationError for positions of streams that the query does not read.

    ``streams`` are the query's, as pairs of the user's name and the ARN. Without this
    check, a misspelled stream would begin at LATEST.
    """
    requested = list(streams)
    known = {key for name, arn in requested for key in (name, arn, stream_name(arn))}
    unknown = sorted(positions.keys() - known)
    if unknown:
        raise ConfigurationError(
            f"option {option} names {', '.join(unknown)}, which the query does not "
            f"read; it reads {', '.join(name for name, _ in requested)}"
        )


def require_known_shards(
    option: str, info: StreamInfo, listed: Container[str], given: StreamOffset
) -> None:
    """Raise ConfigurationError for positions of a recreated stream or unlisted shards.

    A shard that has been read to its end may have expired.
    """
    if given.created_at and given.created_at != info.created_at:
        raise ConfigurationError(
            f"{option}: stream {info.arn} was recreated after the positions "
            "were taken; remove its positions"
        )
    unknown = [
        shard_id
        for shard_id, place in given.shards.items()
        if shard_id not in listed and not isinstance(place, End)
    ]
    if unknown:
        raise ConfigurationError(
            f"{option}: stream {info.arn} has no shard {', '.join(unknown)}; "
            "it has expired, or belongs to another stream"
        )


def _by_time(
    info: StreamInfo, shards: Sequence[Shard], start: Start
) -> dict[str, ShardPosition]:
    if start.type == "LATEST":
        now = Start(type="AT_TIMESTAMP", timestamp=info.now)
        ended = End(info.now)
        return {s.shard_id: ended if s.closed else now for s in shards}
    if start.timestamp is not None:
        if start.timestamp > info.now + FUTURE_SECONDS:
            raise ConfigurationError(
                f"startingPosition of stream {info.arn}: a time in the future"
            )
        if start.timestamp < info.now - info.retention_hours * 3600:
            start = BEGINNING
    return {shard.shard_id: start for shard in shards}


def _given(
    info: StreamInfo, shards: Sequence[Shard], given: StreamOffset
) -> dict[str, ShardPosition]:
    """Return a user's positions. Ancestors of their shards count as read."""
    parents: Mapping[str, Sequence[str]] = {s.shard_id: s.parents for s in shards}
    require_known_shards("startingPosition", info, parents, given)
    ended = End(info.now)
    places: dict[str, ShardPosition] = {
        shard_id: ended
        for shard_id in ancestors(given.shards, parents)
        if shard_id in parents
    }
    for shard_id in parents:
        if shard_id in given.shards:
            place = given.shards[shard_id]
            if isinstance(place, After) and place.seen > info.now + FUTURE_SECONDS:
                raise ConfigurationError(
                    f'startingPosition of stream {info.arn}, {shard_id}: "seen" is a '
                    "time in the future"
                )
            places[shard_id] = ended if isinstance(place, End) else place
        elif shard_id not in places and not _is_below(shard_id, given.shards, parents):
            places[shard_id] = BEGINNING
    return places


def _is_below(
    shard_id: str,
    given: Mapping[str, ShardPosition],
    parents: Mapping[str, Sequence[str]],
) -> bool:
    """Tell whether a shard descends from a shard with a position."""
    return not ancestors([shard_id], parents).isdisjoint(given)
