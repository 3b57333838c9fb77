"""The ports of a replayed client, which answer as the recording says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import msgspec

from kinesumer import errors
from kinesumer.errors import AccessDeniedError, KinesumerError
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.rows import Key, Row
from kinesumer.model.streams import FanOutUse, Shard, Start, StreamInfo
from kinesumer.ports import Reservation, Write, WriteResult
from kinesumer.telemetry.history import Line
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.memory_store import MemoryStore
from kinesumer.testing.simulation.replay.answers import (
    Answer,
    DivergedError,
    Inferred,
    Never,
    Recorded,
    RecordedAnswers,
)
from kinesumer.testing.simulation.replay.recorded_run import (
    Gap,
    RecordedCall,
    RecordedRun,
)
from kinesumer.testing.simulation.replay.shard_reads import (
    ShardReads,
    page_of,
    shard_of,
)
from kinesumer.testing.simulation.replay.timeline import Timeline
from kinesumer.testing.simulation.replay.writes import (
    arguments_of,
    kind_of,
    text_of,
)

# The process stops a moment after the last thing that it did.
STOP_SECONDS = 0.01
# If a write took longer, the timeline says when it was sent.
SLOW_SECONDS = 0.5
# An answer this soon after a pause had arrived during it.
AWAKE_SECONDS = 0.1


# The plan was made before the recording began.
OF_LEADERS = frozenset(("lead", "publish", "assign"))


class Playback:
    """Lets the answers of a recording come at their times, or ends the replay."""

    def __init__(self, run: RecordedRun, loop: VirtualLoop, timeline: Timeline) -> None:
        self.answers: RecordedAnswers = RecordedAnswers(run)
        window = run.config.lease_duration_seconds
        self.reads: ShardReads = ShardReads(run.calls, window)
        self.loop, self.timeline = loop, timeline
        self.begin: float = run.begin
        self.divergence: str = ""
        self._gaps: list[Gap] = run.gaps()

    def diverge(self, text: str) -> None:
        """End the replay, since the client does something else than recorded."""
        if not self.divergence:
            self.divergence = text
            self.timeline.note("DIVERGED", text)
            self.loop.halted = DivergedError(text)

    async def answer(self, choose: Callable[[], Answer]) -> Any:
        """Wait for an answer, and return its result. Raise a recorded error."""
        try:
            answer = choose()
        except DivergedError as error:
            self.diverge(str(error))
            answer = Never()
        match answer:
            case Recorded(call):
                return await self.result_of(call)
            case Inferred(result):
                return result
            case _:
                return await self.nothing()

    async def result_of(self, call: RecordedCall) -> Any:
        """Wait until a recorded answer came, and return it. Raise a recorded error."""
        if call.is_cut_off:
            await self.nothing()
        when = self._arrival(call)
        if when > self.loop.real:
            arrived: asyncio.Future[None] = self.loop.create_future()
            # The answer arrives even while the client is stopped.
            self.loop.at_real(when, _complete, arrived)
            await arrived
        if call.error:
            self.timeline.note("told", f"{call.name}: {call.error}")
            raise _error_of(call.error)
        return call.result

    async def nothing(self) -> None:
        """Wait until the client gives the call up."""
        await self.loop.create_future()

    def _arrival(self, call: RecordedCall) -> float:
        for gap in self._gaps:
            is_before = call.begun <= gap.begin
            if is_before and gap.end <= call.answered <= gap.end + AWAKE_SECONDS:
                return gap.begin + 2 * STOP_SECONDS
        return call.answered


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _error_of(name: str) -> Exception:
    kind = getattr(errors, name, None)
    if not isinstance(kind, type) or not issubclass(kind, KinesumerError):
        return RuntimeError(f"{name}, as recorded")
    if issubclass(kind, AccessDeniedError):
        return kind("an action", "a resource", "as recorded")
    return kind(f"{name}, as recorded")


class ReplayedStore:
    """A ``ports.StateStore`` that answers as the recording says."""

    def __init__(self, playback: Playback, before: MemoryStore) -> None:
        """``before`` is the store until the recording begins."""
        self._playback, self._before = playback, before

    @property
    def _has_begun(self) -> bool:
        return self._playback.loop.real >= self._playback.begin

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row, or None."""
        if not self._has_begun:
            return await self._before.get(key)
        row = await self._read("get", {"key": list(key)})
        return None if row is None else self._row(row)

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return the rows of a partition."""
        if not self._has_begun:
            return await self._before.query(pk, first=first, last=last)
        bounds = {"pk": pk, "first": first, "last": last}
        return [self._row(row) for row in await self._read("query", bounds)]

    async def query_not_updated_since(self, pk: str, moment: str) -> list[Key]:
        """Return the keys of old rows."""
        name = "query_not_updated_since"
        return [Key(*key) for key in await self._read(name, {"pk": pk})]

    async def verify(self) -> str:
        """Return the table's id."""
        return str(await self._read("verify", {"name": "verify"}))

    async def write(self, write: Write) -> WriteResult:
        """Return the result of a conditional write."""
        playback, line = self._playback, arguments_of(write)
        if not self._has_begun:
            if kind_of(line) in OF_LEADERS:
                return WriteResult(False, await self._before.get(write.key))
            return await self._before.write(write)
        sent_at = playback.loop.real
        result = await playback.answer(
            lambda: playback.answers.write(line, playback.loop.real)
        )
        applied = result["applied"]
        row = None if result["row"] is None else self._row(result["row"])
        if applied and row is not None:
            # What the client wrote may differ from what it wrote when recorded.
            row = {**row, **write.set}
            for name in write.remove:
                row.pop(name, None)
        self._show(line, sent_at, applied=applied)
        return WriteResult(applied, row)

    def _show(self, line: Line, sent_at: float, *, applied: bool) -> None:
        if applied and kind_of(line) in ("heartbeat", "note tip", "announce"):
            return
        outcome = "" if applied else ": refused"
        if self._playback.loop.real - sent_at > SLOW_SECONDS:
            outcome += f", sent at {sent_at:.3f} s"
        self._playback.timeline.note("did", f"{text_of(line)}{outcome}")

    async def _read(self, name: str, arguments: Line) -> Any:
        playback = self._playback
        return await playback.answer(
            lambda: playback.answers.read(name, arguments, playback.loop.real)
        )

    def _row(self, row: Mapping[str, Any]) -> Row:
        return row_of(row, self._playback.answers.ids)


def row_of(row: Mapping[str, Any], ids: Mapping[str, str]) -> Row:
    """Return a recorded row, with the ids of the replay."""
    return {
        name: frozenset(value)
        if isinstance(value, list)
        else ids.get(value, value)
        if isinstance(value, str)
        else value
        for name, value in row.items()
    }


class ReplayedSource:
    """A ``ports.StreamSource`` that answers as the recording says."""

    def __init__(
        self, playback: Playback, stream: str, opened: Mapping[str, Any]
    ) -> None:
        self._playback, self._stream = playback, stream
        self._fan_out: FanOutUse | None
        self._use_of(opened)

    async def describe(self) -> StreamInfo:
        """Return the stream's description."""
        return StreamInfo(*await self._read("describe"))

    async def list_shards(self) -> Sequence[Shard]:
        """Return all shards."""
        return [shard_of(shown) for shown in await self._read("list_shards")]

    async def _read(self, name: str) -> Any:
        playback = self._playback
        about = {"name": name, "stream": self._stream}
        return await playback.answer(
            lambda: playback.answers.read(name, about, playback.loop.real)
        )

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Return a connection at once: the wait for it was recorded with the call."""
        return nullcontext()

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        """Return the next recorded iterator of a shard."""
        playback = self._playback
        token, chain = playback.reads.place(
            self._stream, shard_id, after, playback.loop.real
        )
        if chain.call is not None:
            self._use_of(await playback.result_of(chain.call))
        return token

    def fan_out(self) -> FanOutUse | None:
        """Return how fan-out is used."""
        return self._fan_out

    def is_pushed(self, iterator: str) -> bool:
        """Return whether records come by a subscription."""
        return self._playback.reads.chain(iterator).is_pushed

    def release(self, shard_id: str) -> None:
        """Do nothing: nothing is open."""

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return the next recorded page after an iterator."""
        playback = self._playback
        call = playback.reads.chain(iterator).next()
        if call is None:
            await playback.nothing()
            raise AssertionError("the wait ends only by a cancellation")
        result = await playback.result_of(call)
        self._use_of(result)
        page = page_of(result, iterator)
        if reservation is not None:
            if reservation.covers(page.wire_bytes):
                reservation.shrink(page.wire_bytes)
            else:
                await reservation.grow(page.wire_bytes)
        shard_id = call.arguments["shard_id"]
        playback.timeline.count_page(shard_id, len(page.records))
        return page

    def _use_of(self, result: Mapping[str, Any]) -> None:
        use = result.get("fan_out")
        self._fan_out = None if use is None else msgspec.convert(use, FanOutUse)
