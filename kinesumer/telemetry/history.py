"""Write a history of what one client does, which ``kinesumer verify history`` checks.

``docs/histories.md`` describes the lines. No line has the data of a record.
"""

from __future__ import annotations

import os
import socket
import zlib
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import AsyncGeneratorType, FrameType
from typing import Any, Literal, TypeVar, cast

import msgspec

from kinesumer.errors import ConfigurationError
from kinesumer.model.batches import Batch
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.rows import Key, Row, Value
from kinesumer.model.streams import ShardKey, Start, Stream
from kinesumer.ports import (
    AllOf,
    Clock,
    Compare,
    Condition,
    Reservation,
    StateStore,
    StreamSource,
    Write,
    WriteResult,
)

VARIABLE = "KINESUMER_HISTORY"
FORMAT = 1
# Attributes with texts of user code's errors, which may contain data of records.
LEFT_OUT = frozenset(("incidents", "failures"))
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

T = TypeVar("T")
Delivered = Record[Any] | Batch[Any]
D = TypeVar("D", bound=Delivered)
By = Literal["loop", "handler"]


class History:
    """Appends one line of JSON for each thing that the client does.

    A line is written before the client continues. So a history that ends early, because
    its process was killed, is still complete up to its end.
    """

    def __init__(
        self,
        append: Callable[[bytes], object],
        clock: Clock,
        boot: str = "",
        close: Callable[[], object] = bool,
    ) -> None:
        """``boot`` is the same for all processes whose clocks agree."""
        self._append, self._clock, self._boot = append, clock, boot
        self.close: Callable[[], object] = close
        self._numbers = count(1)

    def begin(self, app: str, client_id: str, commit: str) -> None:
        """Write who the client is, and its option ``commit``."""
        about = {"app": app, "client": client_id, "commit": commit, "boot": self._boot}
        offset = self._clock.wall() - self._clock.now()
        self._write("client", {"format": FORMAT, **about, "wall_offset": offset})

    async def call(
        self,
        name: str,
        arguments: Mapping[str, object],
        call: Callable[[], Awaitable[T]],
        shown: Callable[[T], object],
    ) -> T:
        """Make a call to AWS, and write when it began, when it ended, and its answer.

        ``shown`` returns what is written of the answer.
        """
        number = next(self._numbers)
        self._write("call", {"call": number, "name": name, **arguments})
        try:
            answer = await call()
        except BaseException as error:
            self._write("answer", {"call": number, "error": type(error).__name__})
            raise
        self._write("answer", {"call": number, "result": shown(answer)})
        return answer

    def delivered(self, item: Delivered, by: By) -> None:
        """Write that user code gets a record or a batch."""
        keys = [key_text(record) for record in _records(item)]
        self._write_records("deliver", item, {"by": by, "keys": keys})

    def done(self, item: Delivered) -> None:
        """Write that user code has acknowledged, or handled, a record or a batch."""
        self._write_records("done", item, {})

    def given_up(self, item: Delivered) -> None:
        """Write that a record counts as done, though user code could not handle it."""
        self._write_records("give up", item, {})

    def produced(self, shard: ShardKey, positions: Sequence[Position]) -> None:
        """Write that Kinesis has acknowledged records."""
        self._write("produced", {"shard": shard, "positions": positions})

    def before_return(self, take: Callable[[], D | None]) -> Callable[[], D | None]:
        """Return a function that also writes each delivery of what it returns."""

        def noted() -> D | None:
            taken = take()
            if taken is not None:
                self.delivered(taken, "loop")
            return taken

        return noted

    def around(self, call: Callable[[D], Any], *, is_async: bool) -> Callable[[D], Any]:
        """Return a handler that also writes each delivery, and what was handled."""

        async def awaited(item: D) -> None:
            self.delivered(item, "handler")
            await call(item)
            self.done(item)

        def called(item: D) -> Any:
            self.delivered(item, "handler")
            result = call(item)
            self.done(item)
            return result

        return awaited if is_async else called

    def _write_records(
        self, kind: str, item: Delivered, fields: Mapping[str, object]
    ) -> None:
        fence = item.fence
        positions = [record.position for record in _records(item)]
        place = {"shard": fence.shard, "epoch": fence.epoch, "positions": positions}
        self._write(kind, {**place, **fields})

    def _write(self, kind: str, fields: Mapping[str, object]) -> None:
        line = {"kind": kind, "at": self._clock.now(), **fields}
        self._append(msgspec.json.encode(line) + b"\n")


class RecordedLoop(AsyncGenerator[D, None]):
    """A generator of a delivery that also writes each item to a history.

    It is no generator function, whose collected object would close a running generator.
    """

    def __init__(self, items: AsyncGenerator[D, None], history: History) -> None:
        self._items = cast("AsyncGeneratorType[D, None]", items)
        self._history = history

    async def asend(self, value: None) -> D:
        """Return the next item, after its delivery was written."""
        item = await self._items.asend(value)
        self._history.delivered(item, "loop")
        return item

    async def athrow(self, *error: Any) -> D:
        """Raise an error in the generator."""
        return await self._items.athrow(*error)

    async def aclose(self) -> None:
        """Close the generator."""
        await self._items.aclose()

    @property
    def ag_frame(self) -> FrameType | None:
        """The generator's frame; None after its end."""
        return self._items.ag_frame

    @property
    def ag_running(self) -> bool:
        """True while the generator runs."""
        return self._items.ag_running


def _records(item: Delivered) -> Sequence[Record[Any]]:
    return item.records if isinstance(item, Batch) else (item,)


def key_text(record: Record[Any]) -> str:
    """Return a short text that is the same for all records of a partition key.

    It is empty for a record without a key, which has no order.
    """
    key = record.partition_key
    return f"{zlib.crc32(key.encode()):08x}" if key else ""


class HistoryFile:
    """A new file in a directory, to which lines are appended.

    Raises ConfigurationError if a line can't be written: a history with a gap would
    accuse clients of losses.
    """

    def __init__(self, directory: str) -> None:
        name = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}.jsonl"
        self._path = Path(directory) / name
        self._file: int | None = None

    def append(self, line: bytes) -> None:
        """Write a line. The first one creates the file."""
        try:
            if self._file is None:
                self._file = self._open()
            written = os.write(self._file, line)
        except OSError as error:
            raise self._incomplete(error) from error
        if written < len(line):
            raise self._incomplete("the disk is full")

    def close(self) -> None:
        """Close the file. Another line opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def _incomplete(self, cause: object) -> ConfigurationError:
        return ConfigurationError(
            f"{VARIABLE}={self._path.parent}: the history can't be written ({cause}): "
            "name a directory that has room and that this process may write to, or "
            "unset the variable; then start the client again"
        )


def open_history(clock: Clock, environment: Mapping[str, str]) -> History | None:
    """Return a history in the directory that ``KINESUMER_HISTORY`` names, if any."""
    directory = environment.get(VARIABLE)
    if not directory:
        return None
    file = HistoryFile(directory)
    return History(file.append, clock, _boot_id(), file.close)


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:  # not Linux
        return socket.gethostname()


# --- what is written of calls ---------------------------------------------------------


class RecordedStore:
    """A ``ports.StateStore`` whose calls and answers are written to a history."""

    def __init__(self, store: StateStore, history: History) -> None:
        self._store, self._history = store, history
        self.verify = store.verify
        self.query_not_updated_since = store.query_not_updated_since

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
        about = {
            "key": write.key,
            "condition": condition_lists(write.condition),
            "set": _shown(write.set),
            "remove": write.remove,
            "replace": write.replace,
            "delete": write.delete,
        }
        call = partial(self._store.write, write)
        return await self._history.call("write", about, call, _shown_result)


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
    """A ``ports.StreamSource`` whose reads are written to a history."""

    def __init__(self, source: StreamSource, stream: str, history: History) -> None:
        self._source, self._stream, self._history = source, stream, history
        self._shards: dict[str, str] = {}  # by iterator
        self.describe, self.list_shards = source.describe, source.list_shards
        self.fan_out, self.is_pushed = source.fan_out, source.is_pushed
        self.release, self.connection = source.release, source.connection

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator: see ``ports.StreamSource``."""
        about = {"stream": self._stream, "shard_id": shard_id, "after": after}
        call = partial(self._source.get_iterator, shard_id, after)
        iterator = await self._history.call("get_iterator", about, call, _shown_no)
        self._shards[iterator] = shard_id
        return iterator

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return the next page: see ``ports.StreamSource``."""
        shard_id = self._shards.get(iterator, "")
        about = {"stream": self._stream, "shard_id": shard_id, "limit": limit}
        call = partial(self._source.get_records, iterator, limit, reservation)
        page = await self._history.call("get_records", about, call, _shown_page)
        self._shards.pop(iterator, None)
        if page.next_iterator is not None:
            self._shards[page.next_iterator] = shard_id
        return page


def _shown_no(iterator: str) -> object:
    return None


def _shown_page(page: Page) -> object:
    ends = [record.position for record in (*page.records[:1], *page.records[-1:])]
    return {
        "records": len(page.records),
        "first_and_last": ends,
        "millis_behind": page.millis_behind,
        "is_end": page.next_iterator is None,
    }


async def recorded_source(
    open_source: Callable[[Stream], Awaitable[StreamSource]],
    history: History | None,
    stream: Stream,
) -> StreamSource:
    """Open a source whose reads are written to a history, if there is one."""
    source = await open_source(stream)
    return source if history is None else RecordedSource(source, stream.name, history)
