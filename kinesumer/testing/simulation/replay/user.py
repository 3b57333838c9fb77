"""User code that asks for records, and is done with them, at the recorded times."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from kinesumer.client import Kinesumer
from kinesumer.consuming.delivery import Records
from kinesumer.model.records import Fence, Record
from kinesumer.model.streams import Start, Stream
from kinesumer.runtime.tasks import cancel_and_wait
from kinesumer.telemetry.history import Line
from kinesumer.testing.simulation.machine import Machine
from kinesumer.testing.simulation.replay.recorded_run import RecordedRun, UserEvent

# Each record of a batch, by its shard and epoch.
Place = tuple[str, str, int]


class ReplayedUser:
    """Consumes as the recorded program did, at the same times.

    Records of a loop are done when the loop asks for the next ones. Handlers, and
    programs that acknowledge records themselves, are replayed by acknowledgements.
    """

    def __init__(self, run: RecordedRun, machine: Machine, client: Kinesumer) -> None:
        self._run, self._machine, self._client = run, machine, client
        # What was taken, but not acknowledged.
        self._taken: defaultdict[Place, deque[Record]] = defaultdict(deque)
        self._owed: defaultdict[Place, int] = defaultdict(int)

    async def run(self) -> None:
        """Consume until the recording says that the program left the client."""
        async with self._client as client:
            consume = self._run.consume
            start = Start(**consume["start"])
            records = client.consume(
                _streams(consume), start=start, until=consume["until"]
            )
            is_asking = self._client.config.commit == "auto"
            work = self._ask(records) if is_asking else self._take_all(records)
            taking = asyncio.create_task(work)
            following = asyncio.create_task(self._follow())
            try:
                await asyncio.wait((taking, following), return_when="FIRST_COMPLETED")
                if taking.done():
                    taking.result()  # raise the error that ended it
                await following
            finally:
                await cancel_and_wait(taking)
                await cancel_and_wait(following)

    async def _follow(self) -> None:
        """Leave and acknowledge as recorded, until the program left the client."""
        changes: set[asyncio.Task[None]] = set()
        for event in self._run.user:
            await self._until(event.at)
            match event.kind:
                case "refresh":
                    changing = self._client.refresh(_streams(event.line))
                    changes.add(asyncio.create_task(changing))
                case "leave":
                    changes.add(asyncio.create_task(self._client.leave()))
                case "done" | "give up":
                    self._done(event)
                case "end":
                    return
        await asyncio.Event().wait()

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - self._machine.now()))

    # --- loops ------------------------------------------------------------------------

    async def _ask(self, records: Records[Any]) -> None:
        asks = [event.line for event in self._run.user if event.kind == "ask"]
        is_first, loop, items = True, None, _begin(records, asks)
        for ask in asks or [{"at": 0.0, "count": 1, "loop": None}]:
            if loop != (loop := ask["loop"]) and not is_first:
                items = _begin(records, [ask])
            if not is_first:  # the first request starts the client
                await self._until(ask["at"])
            is_first = False
            for _ in range(ask["count"]):
                with suppress(StopAsyncIteration):
                    await anext(items)

    # --- acknowledgements -------------------------------------------------------------

    async def _take_all(self, records: Records[Any]) -> None:
        async for batch in records.batches():
            for record in batch.records:
                place = _place(record.fence)
                self._taken[place].append(record)
                self._ack(place)

    def _done(self, event: UserEvent) -> None:
        line = event.line
        place = (*line["shard"], line["epoch"])
        self._owed[place] += line["count"]
        self._ack(place)

    def _ack(self, place: Place) -> None:
        taken = self._taken[place]
        while taken and self._owed[place]:
            self._owed[place] -= 1
            self._client.ack(taken.popleft())


def _begin(records: Records[Any], asks: list[dict[str, Any]]) -> AsyncIterator[Any]:
    by_record = bool(asks) and asks[0]["items"] == "records"
    return aiter(records) if by_record else aiter(records.batches())


def _streams(line: Line) -> list[Stream]:
    return [
        Stream(**{**shown, "start": shown["start"] and Start(**shown["start"])})
        for shown in line["streams"]
    ]


def _place(fence: Fence) -> Place:
    return (*fence.shard, fence.epoch)
