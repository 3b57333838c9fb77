"""Write the calls of a client to AWS, and their answers, into its history.

No line has the data of a record, a partition key, or the text of an error, which might
quote them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

from kinesumer.model.positions import Position
from kinesumer.model.records import Page, data_size
from kinesumer.model.rows import Key, Row, Value
from kinesumer.model.streams import Shard, Start, Stream, StreamInfo
from kinesumer.ports import (
    AllOf,
    Compare,
    Condition,
    Reservation,
    StateStore,
    StreamSource,
    Write,
    WriteResult,
)
from kinesumer.telemetry.history import History

# Attributes with texts of user code's errors, which may contain data of records.
LEFT_OUT = frozenset(("incidents", "failures"))


class RecordedStore:
    """A ``ports.StateStore`` whose calls and answers are written to a history."""

    def __init__(self, store: StateStore, history: History) -> None:
        self._store, self._history = store, history

    async def verify(self) -> str:
        """Return the table's id: see ``ports.StateStore``."""
        return await self._history.call("verify", {}, self._store.verify, _shown_as_is)

    async def query_not_updated_since(self, pk: str, moment: str) -> list[Key]:
        """Return the keys of old rows: see ``ports.StateStore``."""
        name, about = "query_not_updated_since", {"pk": pk, "moment": moment}
        call = partial(self._store.query_not_updated_since, pk, moment)
        return await self._history.call(name, about, call, _shown_as_is)

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row: see ``ports.StateStore``."""
        about = {"key": key, "consistent": consistent}
        call = partial(self._store.get, key, consistent=consistent)
        return await self._history.call("get", about, call, _shown)

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return the rows of a partition: see ``ports.StateStore``."""
        bounds = {"first": first, "last": last, "consistent": consistent}
        call = partial(
            self._store.query, pk, first=first, last=last, consistent=consistent
        )
        return await self._history.call("query", {"pk": pk, **bounds}, call, _shown_all)

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write: see ``ports.StateStore``."""
        about, call = write_arguments(write), partial(self._store.write, write)
        return await self._history.call("write", about, call, _shown_result)


def write_arguments(write: Write) -> dict[str, object]:
    """Return what is written of a conditional write."""
    return {
        "key": write.key,
        "condition": condition_lists(write.condition),
        "set": _shown(write.set),
        "remove": write.remove,
        "replace": write.replace,
        "delete": write.delete,
    }


def recorded(store: StateStore, history: History | None) -> StateStore:
    """Return a store whose calls are written to a history, if there is one."""
    return store if history is None else RecordedStore(store, history)


@asynccontextmanager
async def recorded_store(
    open_store: Callable[[], AbstractAsyncContextManager[StateStore]],
    history: History | None,
) -> AsyncIterator[StateStore]:
    """Open a store whose calls are written to a history, if there is one."""
    async with open_store() as store:
        yield recorded(store, history)


def _shown(row: Mapping[str, Value] | None) -> object:
    if row is None:
        return None
    return {name: value for name, value in row.items() if name not in LEFT_OUT}


def _shown_all(rows: Sequence[Row]) -> object:
    return [_shown(row) for row in rows]


def _shown_result(result: WriteResult) -> object:
    return {"applied": result.applied, "row": _shown(result.row)}


def condition_lists(condition: Condition) -> list[object]:
    """Return a condition as lists: ``["and", …]``, ``["or", …]`` or a comparison."""
    if isinstance(condition, Compare):
        return list(condition)
    name = "and" if isinstance(condition, AllOf) else "or"
    return [name, *map(condition_lists, condition.parts)]


class RecordedSource:
    """A ``ports.StreamSource`` whose calls are written to a history."""

    def __init__(self, source: StreamSource, stream: str, history: History) -> None:
        self._source, self._stream, self._history = source, stream, history
        self._shards: dict[str, str] = {}  # by iterator
        self.fan_out, self.is_pushed = source.fan_out, source.is_pushed
        self.release, self.connection = source.release, source.connection

    async def describe(self) -> StreamInfo:
        """Return the stream's description: see ``ports.StreamSource``."""
        about = {"stream": self._stream}
        call = self._source.describe
        return await self._history.call("describe", about, call, _shown_as_is)

    async def list_shards(self) -> Sequence[Shard]:
        """Return all shards: see ``ports.StreamSource``."""
        about = {"stream": self._stream}
        call = self._source.list_shards
        return await self._history.call("list_shards", about, call, _shown_shards)

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator: see ``ports.StreamSource``."""
        about = {"stream": self._stream, "shard_id": shard_id, "after": after}
        call = partial(self._source.get_iterator, shard_id, after)
        iterator = await self._history.call("get_iterator", about, call, self._way)
        self._shards[iterator] = shard_id
        return iterator

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return the next page: see ``ports.StreamSource``."""
        shard_id = self._shards.get(iterator, "")
        about = {"stream": self._stream, "shard_id": shard_id, "limit": limit}
        call = partial(self._source.get_records, iterator, limit, reservation)
        page = await self._history.call("get_records", about, call, self._page)
        self._shards.pop(iterator, None)
        if page.next_iterator is not None:
            self._shards[page.next_iterator] = shard_id
        return page

    def _way(self, iterator: str | None) -> dict[str, object]:
        """Return how records come, without the iterator."""
        pushed = iterator is not None and self._source.is_pushed(iterator)
        return _without_zeros({"pushed": pushed, "fan_out": self._source.fan_out()})

    def _page(self, page: Page) -> dict[str, object]:
        ends = [*page.records[:1], *page.records[-1:]]
        about = {
            "records": len(page.records),
            "first_and_last": [record.position for record in ends],
            "arrived": [record.approximate_arrival_timestamp for record in ends],
            "data_bytes": data_size(page.records),
            "wire_bytes": page.wire_bytes,
            "is_cbor": page.is_cbor,
            "millis_behind": page.millis_behind,
            "is_end": page.next_iterator is None,
            "is_unconfirmed": page.is_unconfirmed,
            "children": _shown_shards(page.children),
        }
        # Most pages are empty, and there are several a second of each shard.
        return _without_zeros(about) | self._way(page.next_iterator)


def _without_zeros(fields: Mapping[str, object]) -> dict[str, object]:
    """Return what is neither zero, false, empty nor None."""
    return {name: value for name, value in fields.items() if value}


def _shown_use(source: StreamSource) -> dict[str, object]:
    return {"fan_out": source.fan_out()}


def _shown_shards(shards: Sequence[Shard]) -> list[object]:
    """Return shards with hash keys as texts, as JSON's numbers are too small."""
    return [
        shard._replace(first_hash=str(shard.first_hash), last_hash=str(shard.last_hash))  # type: ignore[arg-type]
        for shard in shards
    ]


def _shown_as_is(answer: object) -> object:
    return answer


async def recorded_source(
    open_source: Callable[[Stream], Awaitable[StreamSource]],
    history: History | None,
    stream: Stream,
) -> StreamSource:
    """Open a source whose calls are written to a history, if there is one."""
    if history is None:
        return await open_source(stream)
    call = partial(open_source, stream)
    about = {"stream": stream.name}
    source = await history.call("open_source", about, call, _shown_use)
    return RecordedSource(source, stream.name, history)
