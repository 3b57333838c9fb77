"""Note what one client does, line by line: for its history, its recording, or both.

``docs/histories.md`` describes the lines. No line has the data of a record.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from itertools import count
from types import AsyncGeneratorType, FrameType
from typing import Any, Literal, Protocol, TypeVar, cast

import msgspec

from kinesumer.config import Config
from kinesumer.model.batches import Batch
from kinesumer.model.positions import Position
from kinesumer.model.records import Record
from kinesumer.model.streams import ShardKey
from kinesumer.ports import Clock

FORMAT = 1

T = TypeVar("T")
Line = dict[str, Any]
Delivered = Record[Any] | Batch[Any]
D = TypeVar("D", bound=Delivered)
By = Literal["loop", "handler"]
Items = Literal["records", "batches"]

# An attribute of a type that no version of the library writes is a subclass of str.
_encode = msgspec.json.Encoder(enc_hook=str).encode


def encode_line(line: object) -> bytes:
    """Return a line as JSON."""
    try:
        return _encode(line)
    except OverflowError:  # a row that was edited may have a number of 38 digits
        return json.dumps(msgspec.to_builtins(line, enc_hook=str)).encode()


class Sink(Protocol):
    """Takes the lines of a client. Several threads may call it."""

    def append(self, line: Line) -> None:
        """Take a line, whose values msgspec can encode."""

    def close(self) -> None:
        """Release what is open. Another line may follow."""


class History:
    """Makes one line for each thing that the client does, and passes it to the sinks.

    A sink gets a line before the client continues. So a history that ends early,
    because its process was killed, is still complete up to its end.
    """

    def __init__(self, sinks: Sequence[Sink], clock: Clock, boot: str = "") -> None:
        """``boot`` is the same for all processes whose clocks agree."""
        self._sinks, self._clock, self._boot = sinks, clock, boot
        self._numbers, self._loops = count(1), count(1)

    def begin(
        self, app: str, client_id: str, commit: str, config: Config | None = None
    ) -> None:
        """Write who the client is, and its settings."""
        about: Line = {"app": app, "client": client_id, "commit": commit}
        if config is not None:
            about["config"] = config
        offset = self._clock.wall() - self._clock.now()
        times = {"boot": self._boot, "wall_offset": offset}
        self.note("client", {"format": FORMAT, **about, **times})

    def close(self) -> None:
        """Close the sinks."""
        for sink in self._sinks:
            sink.close()

    def note(self, kind: str, fields: Mapping[str, object]) -> None:
        """Write a line of a kind, with the present time."""
        line = {"kind": kind, "at": self._clock.now(), **fields}
        for sink in self._sinks:
            sink.append(line)

    def new_loop(self) -> int:
        """Return the number of a new loop over records."""
        return next(self._loops)

    def asked(self, loop: int, items: Items) -> None:
        """Write that a loop asks for its next item."""
        self.note("ask", {"loop": loop, "items": items})

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
        self.note("call", {"call": number, "name": name, **arguments})
        try:
            answer = await call()
        except BaseException as error:
            self.note("answer", {"call": number, "error": type(error).__name__})
            raise
        self.note("answer", {"call": number, "result": shown(answer)})
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
        self.note("produced", {"shard": shard, "positions": positions})

    def before_return(
        self, take: Callable[[], D | None], items: Items
    ) -> Callable[[], D | None]:
        """Return a function that also writes each request, and what it returns."""
        loop = self.new_loop()

        def noted() -> D | None:
            self.asked(loop, items)
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
        self.note(kind, {**place, **fields})


class RecordedLoop(AsyncGenerator[D, None]):
    """A generator of a delivery that also writes each request and item to a history.

    It is no generator function, whose collected object would close a running generator.
    """

    def __init__(
        self, items: AsyncGenerator[D, None], history: History, kind: Items
    ) -> None:
        self._items = cast("AsyncGeneratorType[D, None]", items)
        self._history, self._kind = history, kind
        self._number = history.new_loop()

    async def asend(self, value: None) -> D:
        """Return the next item, after its request and its delivery were written."""
        self._history.asked(self._number, self._kind)
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
