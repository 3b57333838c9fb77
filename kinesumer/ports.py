"""Protocols that the engine depends on: state store, stream source and clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page
    from kinesumer.model.rows import Key, Row, Value
    from kinesumer.model.streams import Shard, Start, StreamInfo


class Compare(NamedTuple):
    """A comparison with a stored attribute. It is false if the attribute is absent.

    ``size<`` and ``size=`` compare a string's length. ``exists`` and ``absent``
    ignore ``value``.
    """

    attribute: str
    op: Literal["=", "<", "<=", "size<", "size=", "exists", "absent"]
    value: Value = ""


Compare.__test__ = False  # type: ignore[attr-defined]  # pytest, it's no test class


class AllOf(NamedTuple):
    """A condition that is true if every part is true."""

    parts: tuple[Condition, ...]


class AnyOf(NamedTuple):
    """A condition that is true if at least one part is true."""

    parts: tuple[Condition, ...]


Condition = Compare | AllOf | AnyOf


class Write(NamedTuple):
    """One conditional change of one row: an upsert of attributes, or a deletion."""

    key: Key
    condition: Condition
    set: Mapping[str, Value] = {}
    remove: tuple[str, ...] = ()
    replace: bool = False
    """Whether the row loses all attributes that ``set`` doesn't name (a Put)."""
    delete: bool = False


class WriteResult(NamedTuple):
    """The result of a conditional write."""

    applied: bool
    row: Row | None
    """The new row if applied (None after a deletion), else the conflicting row."""


class StateStore(Protocol):
    """One table. Its calls raise StoreUnavailableError if the table can't respond."""

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row, or None."""
        ...

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return all rows of a partition with first <= sk <= last, ordered by sk.

        An empty bound doesn't limit the result. All pages are read.
        """
        ...

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write, without retries.

        Raise StoreThrottledError if it certainly wasn't applied, and
        StoreUnavailableError if it may have been applied.
        """
        ...

    async def query_not_updated_since(self, pk: str, moment: str) -> list[Key]:
        """Return the keys of a partition with ``last_update`` at or before a time.

        Reads the index ``index-client-key-last-update``.
        """
        ...

    async def verify(self) -> str:
        """Check the table's existence, keys and index, and return its id.

        Raise StateStoreMissingError or StateStoreSchemaError.
        """
        ...


class Reservation(Protocol):
    """Memory that is reserved for a response of unknown size."""

    def covers(self, size: int | None) -> bool:
        """Return whether a response of ``size`` bytes fits; None: of any size."""
        ...

    def shrink(self, size: int) -> None:
        """Release the memory that a response of ``size`` bytes doesn't need."""
        ...

    async def grow(self, size: int | None) -> None:
        """Wait for the memory of a response of ``size`` bytes; None: of any size.

        Receiving is paused meanwhile, and so is the response's time-out.
        """
        ...


class StreamSource(Protocol):
    """Kinesis for one stream's account, region and role."""

    async def describe(self) -> StreamInfo:
        """Return the stream's current description. Raise StreamMissingError."""
        ...

    async def list_shards(self) -> Sequence[Shard]:
        """Return every shard that Kinesis lists, including closed shards."""
        ...

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Wait for a connection, which the running task's calls in the block use.

        Outside such a block, each call waits for a connection itself, and the call's
        duration includes the wait.
        """
        ...

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator just after a position, or at a start.

        For a position with a ``sub_sequence_number``, the iterator is *at* its sequence
        number, since the rest of the aggregate is still to be read. Raise
        ShardMissingError, TrimmedPositionError, InvalidPositionError,
        StartInFutureError.
        """
        ...

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return the next page. Raise ExpiredIteratorError or SourceThrottledError.

        An answer that ``room`` does not cover is received once the room has grown.
        Raises SlowAnswerError if an answer began to come but took too long.
        """
        ...


class Clock(Protocol):
    """The clocks of one machine."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock that also counts suspended time."""
        ...

    def wall(self) -> float:
        """Return seconds since 1970 in UTC, to display and to send to Kinesis.

        No decision about ownership uses them.
        """
        ...
