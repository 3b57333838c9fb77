"""What the engine needs from the world: a state store, a stream source, a clock."""

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
    """One comparison of a stored attribute; false where the attribute is absent.

    ``size<`` and ``size=`` compare a string's length. ``exists`` and ``absent``
    ignore ``value``.
    """

    attribute: str
    op: Literal["=", "<", "<=", "size<", "size=", "exists", "absent"]
    value: Value = ""


Compare.__test__ = False  # type: ignore[attr-defined]  # pytest, it's no test class


class AllOf(NamedTuple):
    """True if every part is."""

    parts: tuple[Condition, ...]


class AnyOf(NamedTuple):
    """True if at least one part is."""

    parts: tuple[Condition, ...]


Condition = Compare | AllOf | AnyOf


class Write(NamedTuple):
    """One conditional change of one row: upsert of attributes, or a deletion."""

    key: Key
    condition: Condition
    set: Mapping[str, Value] = {}
    remove: tuple[str, ...] = ()
    replace: bool = False
    """Attributes that ``set`` doesn't name are dropped (a Put)."""
    delete: bool = False


class WriteResult(NamedTuple):
    """What came of a write."""

    applied: bool
    row: Row | None
    """The new row if applied (None after a deletion), else the row that refused it."""


class StateStore(Protocol):
    """One table. Raises StoreUnavailableError (or its kind) when it can't answer."""

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row, or None."""
        ...

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return all rows of a partition with first <= sk <= last, ordered by sk.

        An empty bound is no bound. Pages are followed to the end.
        """
        ...

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write, without retries of its own.

        Raises StoreThrottledError when it surely didn't happen, and
        StoreUnavailableError when it may have.
        """
        ...

    async def query_not_updated_since(self, pk: str, moment: str) -> list[Key]:
        """Return the keys of a partition whose ``last_update`` is at or before moment.

        Reads the index ``index-client-key-last-update``.
        """
        ...

    async def verify(self) -> str:
        """Check that the table is there and has the keys and index; return its id.

        Raises StateStoreMissingError or StateStoreSchemaError.
        """
        ...


class Reservation(Protocol):
    """Memory that is set aside for an answer whose size is not known beforehand."""

    def covers(self, size: int | None) -> bool:
        """Tell whether an answer of ``size`` bytes fits; None: whatever its size."""
        ...

    def shrink(self, size: int) -> None:
        """Give back what an answer of ``size`` bytes does not need."""
        ...

    async def grow(self, size: int | None) -> None:
        """Wait until an answer of ``size`` bytes may be received; None: of any size.

        Nothing is received meanwhile, and no time-out of the answer runs.
        """
        ...


class StreamSource(Protocol):
    """Kinesis for one stream's account, region and role."""

    async def describe(self) -> StreamInfo:
        """Return the stream as it is now. Raises StreamMissingError."""
        ...

    async def list_shards(self) -> Sequence[Shard]:
        """Return every shard that Kinesis still knows, closed ones included."""
        ...

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Wait for a connection that the running task's calls in the block use.

        Outside of such a block each call waits for one itself: then its time includes
        the wait.
        """
        ...

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator just after a sequence number, or at a start.

        For a position with a ``sub_sequence_number`` the iterator is *at* its sequence
        number, since the rest of the aggregate is still to be read. Raises
        ShardMissingError, TrimmedPositionError, InvalidPositionError,
        StartInFutureError.
        """
        ...

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return the next page. Raises ExpiredIteratorError, SourceThrottledError.

        An answer that ``room`` does not cover is received once the room has grown.
        Raises SlowAnswerError if an answer began to come but took too long.
        """
        ...


class Clock(Protocol):
    """Time as one machine sees it."""

    def now(self) -> float:
        """Return seconds on a clock that never goes back and runs through suspend."""
        ...

    def wall(self) -> float:
        """Return seconds since 1970 in UTC: for people and Kinesis, never to decide."""
        ...
