"""Protocols that the engine depends on: state store, stream source and clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.rows import Key, Row, Value
from kinesumer.model.streams import FanOutUse, Shard, ShardKey, Start, StreamInfo


class Compare(NamedTuple):
    """A comparison with a stored attribute.

    If the attribute is absent, every comparison except ``absent`` is false. ``size<``
    and ``size=`` compare a string's length. ``exists`` and ``absent`` ignore ``value``.
    """

    attribute: str
    op: Literal["=", "<", "<=", "size<", "size=", "exists", "absent"]
    value: Value = ""


Compare.__test__ = False  # type: ignore[attr-defined]  # pytest, it's no test class


@dataclass(frozen=True, init=False)
class _Parts:
    parts: tuple[Condition, ...]

    def __init__(self, *parts: Condition) -> None:
        object.__setattr__(self, "parts", parts)


class AllOf(_Parts):
    """A condition that is true if every part is true."""


class AnyOf(_Parts):
    """A condition that is true if at least one part is true."""


Condition = Compare | AllOf | AnyOf


class Write(NamedTuple):
    """A conditional change of one row. It upserts attributes or deletes the row."""

    key: Key
    condition: Condition
    set: Mapping[str, Value] = {}
    remove: tuple[str, ...] = ()
    # Whether attributes that ``set`` doesn't name are removed, as by PutItem.
    replace: bool = False
    delete: bool = False


class WriteResult(NamedTuple):
    """The result of a conditional write."""

    applied: bool
    # If applied, the new row (None after a deletion). Otherwise the conflicting row.
    row: Row | None


class StateStore(Protocol):
    """The state store. Calls raise StoreUnavailableError if its table can't respond."""

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row, or None."""

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return all rows of a partition with first <= sk <= last, ordered by sk.

        An empty bound doesn't limit the result. All pages are read.
        """

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write, without retries.

        Raise StoreThrottledError if it certainly wasn't applied, and
        StoreUnavailableError if it may have been applied.
        """

    async def query_not_updated_since(self, pk: str, moment: str) -> list[Key]:
        """Return the keys of a partition's rows with ``last_update`` <= ``moment``.

        Reads the index ``index-client-key-last-update``.
        """

    async def verify(self) -> str:
        """Check the table's existence, keys and index, and return its id.

        Raise StateStoreMissingError or StateStoreSchemaError.
        """


class LeaseTable(Protocol):
    """The lease table of a KCL fleet. Errors are those of a state store's calls.

    The key of a ``Write`` is a lease's key and an empty sort key.
    """

    name: str

    async def scan(self, *, consistent: bool = False) -> list[Row]:
        """Return all rows."""

    async def get(self, lease_key: str) -> Row | None:
        """Return one row, read consistently, or None."""

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write, without retries."""


class FleetTables(NamedTuple):
    """The tables of a KCL fleet."""

    leases: LeaseTable
    # The entries of its workers up to KCL 3.4; a table that need not exist.
    workers: LeaseTable


class RowLeases(Protocol):
    """The leases of single shards, if a state store has such leases.

    Any thread may call it.
    """

    def deadline(self, shard: ShardKey, epoch: int) -> float:
        """Return until when the owner of an epoch may deliver a shard's records.

        Return -inf if it has lost the shard.
        """

    def when_lost(self, call: Callable[[], object]) -> None:
        """Call a function, from any thread, after each loss of a shard."""


class Reservation(Protocol):
    """Memory that is reserved for a response of unknown size."""

    def covers(self, size: int | None) -> bool:
        """Return whether a response of ``size`` bytes (None if unknown) fits."""

    def shrink(self, size: int) -> None:
        """Release memory that isn't needed for a response of ``size`` bytes."""

    async def grow(self, size: int | None) -> None:
        """Wait for the memory of a response of ``size`` bytes (None if unknown).

        Receiving is paused meanwhile, and so is the response's time-out.
        """


class ReservedForAny:
    """A ``Reservation`` of the memory for a response of any size."""

    def covers(self, size: int | None) -> bool:
        """Return True."""
        return True

    def shrink(self, size: int) -> None:
        """Do nothing: the reader releases the memory."""

    async def grow(self, size: int | None) -> None:
        """Do nothing."""


class StreamSource(Protocol):
    """Access to one stream, with its account, region and role."""

    async def describe(self) -> StreamInfo:
        """Return the stream's current description. Raise StreamMissingError."""

    async def list_shards(self) -> Sequence[Shard]:
        """Return every shard that Kinesis lists, including closed shards."""

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Wait for a connection, and reserve it for the task's calls inside the block.

        Outside such a block, each call waits for a connection itself, and the call's
        duration includes the wait.
        """

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator just after a position, or at a start.

        For a position with a ``sub_sequence_number``, the iterator is *at* its sequence
        number, since the rest of the aggregate is still to be read. A position that
        lies past the last record of a closed shard is the shard's end. Raise
        ShardMissingError if Kinesis doesn't list the shard, TrimmedPositionError,
        InvalidPositionError, StartInFutureError.
        """

    def fan_out(self) -> FanOutUse | None:
        """Return how fan-out is used; None if it was not requested.

        Any thread may call it.
        """

    def is_pushed(self, iterator: str) -> bool:
        """Return whether ``get_records()`` waits until records arrive.

        Such an iterator is read again at once. It needs no reserved memory before its
        answer has arrived.
        """

    def release(self, shard_id: str) -> None:
        """Close what the reads of a shard have left open."""

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return the next page. Raise ExpiredIteratorError or SourceThrottledError.

        The page has no iterator if, and only if, the shard is closed and nothing
        follows. If ``reservation`` doesn't cover the response, the response is received
        after the reservation has grown. Raise SlowAnswerError if the response began to
        arrive, but took too long.
        """


class Polled:
    """The answers of a StreamSource that has no subscriptions."""

    def fan_out(self) -> FanOutUse | None:
        """Return None: the stream is polled."""
        return None

    def is_pushed(self, iterator: str) -> bool:
        """Return False: ``get_records()`` asks for records."""
        return False

    def release(self, shard_id: str) -> None:
        """Do nothing: no read leaves anything open."""


class Clock(Protocol):
    """The clocks of one machine."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock that also counts suspended time."""

    def wall(self) -> float:
        """Return seconds since 1970 in UTC, to display and to send to Kinesis.

        No decision about the ownership of shards depends on this time.
        """
