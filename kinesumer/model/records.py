"""Records, and the identity of their shard and owner."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence, Set
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, Self, overload

import msgspec

from kinesumer.errors import DecodeError
from kinesumer.model.changes import Change, read_change
from kinesumer.model.json_decoding import cause_text, json_decoder
from kinesumer.model.positions import Position
from kinesumer.model.streams import YEAR_10000, Shard, ShardKey, stream_name
from kinesumer.model.table_streams import is_table_stream

if TYPE_CHECKING:
    # typing.TypeVar has defaults (PEP 696) only since Python 3.13. With the default,
    # the annotation ``Record`` means ``Record[bytes]``.
    from typing_extensions import TypeVar

    T_co = TypeVar("T_co", covariant=True, default=bytes)
    V = TypeVar("V")
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)
    V = TypeVar("V")


# ``Page.millis_behind`` if the service doesn't say it, and records may follow.
UNKNOWN_BEHIND_MILLIS = 1
# The memory that a small record takes in addition to its data: the struct, two strings
# and the header of the bytes object (measured with CPython 3.11).
RECORD_OVERHEAD_BYTES = 420


class Fence(NamedTuple):
    """The owner and position of a delivery, for a sink to store with its output.

    A larger epoch belongs to a later owner of the shard. If a position isn't after the
    stored position, its record was stored already.
    """

    shard: ShardKey
    epoch: int
    app: str = ""
    """Name of the group; empty for records that no group delivered."""
    position: Position | None = None
    """Position of the record or of a batch's last record. None for an empty batch."""

    @property
    def stream_arn(self) -> str:
        """The stream's ARN."""
        return self.shard.stream_arn

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self.shard.shard_id

    def at(self, position: Position | None) -> Fence:
        """Return the same fence at another position."""
        return Fence(self.shard, self.epoch, self.app, position)


class Source:
    """The fields that all records of one shard and epoch share."""

    __slots__ = (
        "fence",
        "first_hash",
        "has_changes",
        "last_hash",
        "shard_id",
        "stream",
        "stream_arn",
    )

    def __init__(self, fence: Fence, first_hash: int, last_hash: int) -> None:
        self.fence: Fence = fence
        self.stream_arn, self.shard_id = fence.shard
        self.stream: str = stream_name(self.stream_arn)
        # Whether the records are changes of a DynamoDB table's items.
        self.has_changes: bool = is_table_stream(self.stream_arn)
        self.first_hash, self.last_hash = first_hash, last_hash

    def __repr__(self) -> str:
        stream, shard_id, epoch = self.stream, self.shard_id, self.fence.epoch
        return f"<Source: {stream=}, {shard_id=}, {epoch=}>"


# Types of fields that only the library sets. No value in JSON satisfies their
# constraints, so decoding fails if a response has such a field. A response like this
# isn't from Kinesis.
NotInJson = Annotated[int, msgspec.Meta(gt=0, lt=0)]
TextNotInJson = Annotated[str, msgspec.Meta(min_length=1, max_length=0)]
# Seconds since 1970. A page with an invalid time is rejected.
Seconds = Annotated[float, msgspec.Meta(ge=0, lt=YEAR_10000)]


# A page has up to 10,000 records. To save time, the decoder of GetRecords creates them
# directly, and the garbage collector doesn't track them (gc=False).
class Record(msgspec.Struct, Generic[T_co], gc=False, rename="pascal"):
    """One user record, with a value of type ``T_co``.

    The value is ``data``, unless ``consume()`` or ``run()`` got ``decode=``.
    """

    sequence_number: str
    data: bytes
    partition_key: str | None = None
    approximate_arrival_timestamp: Seconds | None = None
    explicit_hash_key: TextNotInJson | None = msgspec.field(name="-hash", default=None)
    """The producer's explicit hash key, in decimal digits as in AWS's API. Only records
    of aggregates have it, because Kinesis doesn't return it for other records. None if
    the aggregate has other text in its place."""
    sub_sequence_number: NotInJson | None = msgspec.field(name="-sub", default=None)
    """Index within a KPL aggregate, from 0. None if the record wasn't aggregated."""
    source: Source | None = msgspec.field(name="-source", default=None)

    # A page cannot set the value, since it isn't a field of this class.
    @property
    def value(self) -> T_co:
        """The decoded value; ``data`` if the client doesn't decode."""
        return self.data  # type: ignore[return-value]

    def with_value(self, value: V) -> Record[V]:
        """Return a copy of the record with this value."""
        return DecodedRecord(
            self.sequence_number,
            self.data,
            self.partition_key,
            self.approximate_arrival_timestamp,
            self.explicit_hash_key,
            self.sub_sequence_number,
            self.source,
            value,
        )

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, type: type[V]) -> V: ...
    @overload
    def json(self, type: Any) -> Any: ...
    def json(self, type: Any = Any) -> Any:
        """Return the data, decoded from JSON as a value of a type.

        ``type`` is a msgspec Struct, a dataclass, a Pydantic model, or another type
        that msgspec can decode. By default, the value consists of dictionaries, lists
        and other plain values. Raises DecodeError if the data isn't JSON of the type,
        and ConfigurationError if the type cannot be decoded.
        """
        decode = json_decoder(type)
        try:
            return decode(self.data)
        except Exception as error:  # Pydantic's validators may raise any error
            raise decode_error(self, error) from error

    @property
    def change(self) -> Change:
        """The change of a DynamoDB item that the data tells.

        Records of tables' streams have one, and those of a Kinesis data stream for
        DynamoDB. It is read from the data at each call. Raises DecodeError if the data
        tells no change.
        """
        try:
            return read_change(self.data)
        except (ValueError, RecursionError) as error:  # or msgspec's, a ValueError
            raise decode_error(self, error) from error

    @property
    def stream(self) -> str:
        """The stream's name: ``table/NAME`` for the stream of a DynamoDB table."""
        return self._source.stream

    @property
    def stream_arn(self) -> str:
        """The stream's ARN."""
        return self._source.stream_arn

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self._source.shard_id

    @property
    def fence(self) -> Fence:
        """The app, the shard, the owner's epoch, and the position."""
        return self._source.fence.at(self.position)

    @property
    def arrived_at(self) -> datetime | None:
        """Time at which Kinesis accepted the record (UTC, to about a millisecond)."""
        seconds = self.approximate_arrival_timestamp
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)

    @property
    def position(self) -> Position:
        """The position in the shard, up to and including this record."""
        return Position(self.sequence_number, self.sub_sequence_number)

    @property
    def _source(self) -> Source:
        if self.source is None:
            raise AttributeError(
                "this record has no shard: it wasn't delivered by a client"
            )
        return self.source


# A decoded value may refer to its record, so the garbage collector must track both.
class DecodedRecord(Record[T_co], gc=True):
    """A record whose value was decoded from its data."""

    value: T_co = msgspec.field(name="-value", default=None)  # type: ignore[assignment]


def decode_error(record: Record[Any], cause: BaseException) -> DecodeError:
    """Return the error that names a record and why it cannot be decoded."""
    part = record.sub_sequence_number
    name = (
        record.sequence_number if part is None else f"{record.sequence_number}:{part}"
    )
    place = f" of stream {record.stream}, {record.shard_id}," if record.source else ""
    text = cause_text(cause)
    return DecodeError(
        f"record {name}{place} cannot be decoded: {text}; correct the producer, or "
        "what decodes it",
        record,
        text,
    )


# The buffers of a column in Arrow's order: which records have a value (None if all have
# one), the offsets of strings, and the values. None if no record has a value.
ColumnBuffers = tuple[bytes | None, ...] | None


class Buffers(NamedTuple):
    """The buffers of records' columns, as Arrow lays them out.

    Arrival times are int64, in microseconds since 1970.
    """

    sequence_numbers: ColumnBuffers
    partition_keys: ColumnBuffers
    data: ColumnBuffers
    explicit_hash_keys: ColumnBuffers
    arrival_micros: ColumnBuffers
    sub_sequence_numbers: ColumnBuffers


class PackedRecords(Sequence[Record]):
    """Records that aren't objects: each becomes one when it is asked for."""

    __slots__ = ("source",)

    source: Source | None  # the source of all records

    @property
    @abstractmethod
    def data_bytes(self) -> int:
        """The size of the records' data."""

    @abstractmethod
    def copied(self, *, has_data: bool = True) -> Self:
        """Return a copy, which does not keep other records in memory.

        Without ``has_data``, it has only positions and arrival times.
        """

    @abstractmethod
    def without(self, indexes: Set[int]) -> Self:
        """Return all records but some."""

    @abstractmethod
    def columns(self) -> Buffers:
        """Return the records as the buffers of Arrow."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class Page(NamedTuple):
    """A GetRecords response whose aggregates aren't unpacked yet."""

    records: Sequence[Record]
    # From a StreamSource, None means that the shard is closed and nothing follows. In a
    # response, it may also be missing without a reason: see ``core.lineage``.
    next_iterator: str | None
    millis_behind: int
    children: tuple[Shard, ...] = ()
    wire_bytes: int = 0  # length of the response's body
    is_cbor: bool = False  # whether the body was CBOR, and not JSON
    # True if the response looked like a shard's end, but the shard is open.
    is_unconfirmed: bool = False

    @property
    def is_at_tip(self) -> bool:
        """True if no record follows at present. Pages before that may be empty."""
        return self.next_iterator is None or not self.millis_behind

    @property
    def may_be_at_tip(self) -> bool:
        """True if the page has no record, and only the next one tells if any follows.

        So answers a table's stream, which doesn't say how far a page is behind.
        """
        return not self.records and self.millis_behind == UNKNOWN_BEHIND_MILLIS


def memory_size(records: Sequence[Record]) -> int:
    """Return the approximate memory of records in bytes."""
    return data_size(records) + RECORD_OVERHEAD_BYTES * len(records)


def data_size(records: Sequence[Record]) -> int:
    """Return the size of the records' data in bytes."""
    if isinstance(records, PackedRecords):
        return records.data_bytes
    return sum([len(r.data) for r in records])
