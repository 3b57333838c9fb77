"""Build the records and batches that a unit test passes to a handler."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from kinesumer.errors import ConfigurationError
from kinesumer.model.batches import Batch
from kinesumer.model.records import Fence, Record, Source
from kinesumer.model.streams import HASH_KEYS, ShardKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import TypeVar

    # Without a value, a record has the value of undecoded records: its data.
    T = TypeVar("T", default=bytes)

STREAM = "orders"
SHARD = "shardId-000000000000"
# Sequence numbers of Kinesis have 56 digits. Each record gets the next one.
_SEQUENCE_NUMBERS = count(49 * 10**54 + 1)


def record(
    data: bytes,
    *,
    value: T = UNSET,  # type: ignore[assignment]
    partition_key: str | None = "key",
    stream: str = STREAM,
    shard_id: str = SHARD,
    arrived_at: datetime | None = None,
    sequence_number: str | None = None,
    sub_sequence_number: int | None = None,
    app: str = "test",
    epoch: int = 1,
) -> Record[T]:
    """Return a record as a client delivers it, with a shard, a position and a fence.

    ``stream`` is a name or an ARN. A name belongs to the account 000000000000 in
    us-east-1. By default, ``arrived_at`` is the present time, and ``sequence_number``
    is larger than those of all records that were built before. ``sub_sequence_number``
    is the index within a KPL aggregate. ``app`` and ``epoch`` appear in the fence.
    ``value`` is the decoded value; by default it is the data.

    Raises ConfigurationError if the data isn't bytes, or the time has no zone.
    """
    if not isinstance(data, bytes):
        raise ConfigurationError(
            f"data={data!r:.100} must be bytes, as Kinesis returns them: encode it"
        )
    arrived_at = datetime.now(UTC) if arrived_at is None else arrived_at
    if arrived_at.tzinfo is None:
        raise ConfigurationError(
            f"arrived_at={arrived_at!r} has no time zone: use datetime.now(UTC) or "
            "arrived_at.replace(tzinfo=UTC)"
        )
    made = Record(
        str(next(_SEQUENCE_NUMBERS)) if sequence_number is None else sequence_number,
        data,
        partition_key,
        arrived_at.timestamp(),
        sub_sequence_number=sub_sequence_number,
        source=_source(stream, shard_id, app, epoch),
    )
    return made if value is UNSET else made.with_value(value)  # type: ignore[return-value]


def batch(
    records: Sequence[Record[T] | bytes],
    *,
    stream: str = STREAM,
    shard_id: str = SHARD,
    millis_behind: int = 0,
) -> Batch[T]:
    """Return a batch of records of one shard, in order.

    Each item is a result of ``record()``, or the data of a record of ``stream`` and
    ``shard_id``. An empty batch belongs to ``stream`` and ``shard_id`` too.

    Raises ConfigurationError if the records belong to several shards, or have no shard.
    """
    built: list[Any] = [
        record(item, stream=stream, shard_id=shard_id)
        if isinstance(item, bytes)
        else item
        for item in records
    ]
    sources = [item.source for item in built]
    fences = {None if source is None else source.fence for source in sources}
    if len(fences) > 1 or None in fences:
        raise ConfigurationError(
            f"{len(built)} records belong to {len(fences)} shards or owners: use "
            "records of one shard, built by kinesumer.testing.record()"
        )
    source = sources[0] if sources else None
    return Batch(built, millis_behind, source or _source(stream, shard_id, "test", 1))


def _source(stream: str, shard: str, app: str, epoch: int) -> Source:
    is_arn = stream.startswith("arn:")
    arn = stream if is_arn else f"arn:aws:kinesis:us-east-1:{'0' * 12}:stream/{stream}"
    return Source(Fence(ShardKey(arn, shard), epoch, app), 0, HASH_KEYS - 1)
