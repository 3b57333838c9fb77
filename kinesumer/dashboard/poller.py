"""Looks at a fleet for as long as somebody watches, and tells what it saw."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from kinesumer.admin.lag import Lags
from kinesumer.admin.observation import Observation, observe
from kinesumer.admin.snapshot import Snapshot
from kinesumer.dashboard import events, palette
from kinesumer.dashboard.fleet import StreamMeasurements
from kinesumer.dashboard.history import LagHistory
from kinesumer.dashboard.view_model import DashboardInfo, ViewInput, build_state
from kinesumer.errors import KinesumerError
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kinesumer.dashboard.fleet import FleetSource
    from kinesumer.dashboard.model import Event
    from kinesumer.ports import Clock

SHORTEST_SECONDS = 2.0
SHARDS_A_SECOND = 250
"""A look reads every shard's row: larger fleets are looked at less often."""
MEASURING_SECONDS = 1.0
"""A look waits for Kinesis for so long; what comes later is in the next one."""
KEPT_EVENTS = 200
NOBODY = Snapshot([], None, [], {})
NOTHING = StreamMeasurements(Lags({}, {}), {})


class Poller:
    """One fleet's watcher, whoever watches: the reads don't grow with the pages."""

    def __init__(self, about: DashboardInfo, fleet: FleetSource, clock: Clock) -> None:
        self._about, self._fleet, self._clock = about, fleet, clock
        self._sighting: Observation | None = None
        self._measured = NOTHING
        self._measuring: asyncio.Task[StreamMeasurements] | None = None
        self._hour = LagHistory()
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._happened = 0
        self._slots: dict[str, int] = {}
        self._drawn = b""
        self._number = 0
        self._pages = 0
        self._ends = False
        self._news = asyncio.Condition()
        self._hurry = asyncio.Event()

    @property
    def sighting(self) -> Observation | None:
        """What was seen at the last look that succeeded."""
        return self._sighting

    def hurry(self) -> None:
        """Look again at once: somebody changed something."""
        self._hurry.set()

    async def states(self) -> AsyncGenerator[bytes]:
        """Yield the newest state as JSON, then every later one.

        Who is slow misses states, not changes: each has everything.
        """
        known = 0
        if not self._pages:
            known = self._number  # it may be an hour old
            self._hurry.set()
        self._pages += 1
        try:
            while state := await self._later_than(known):
                known = self._number
                yield state
        finally:
            self._pages -= 1

    async def _later_than(self, number: int) -> bytes:
        """Wait for a later state; nothing once states end."""
        async with self._news:
            await self._news.wait_for(lambda: self._ends or self._number > number)
        return b"" if self._ends else self._drawn

    async def end(self) -> None:
        """Let every page's states end."""
        self._ends = True
        async with self._news:
            self._news.notify_all()

    async def run(self) -> None:
        """Look again and again; rest while nobody watches."""
        try:
            while True:
                await self._rest()
                state = await self._look()
                async with self._news:
                    self._drawn, self._number = state, self._number + 1
                    self._news.notify_all()
        finally:
            self._forget_lags()

    async def _rest(self) -> None:
        """Wait until the next look is due: no page, no look."""
        timeout = self._every_seconds() if self._pages else None
        if timeout is None:
            self._forget_lags()
        try:
            async with asyncio.timeout(timeout):
                await self._hurry.wait()
        except TimeoutError:
            return
        self._hurry.clear()

    def _forget_lags(self) -> None:
        """What was measured before a rest tells nothing of the time after it."""
        self._measured = NOTHING
        if self._measuring is not None:
            self._measuring.cancel()
            self._measuring = None

    def _every_seconds(self) -> float:
        found = self._sighting.found if self._sighting else NOBODY
        shards = sum(len(page) for page in found.shards.values())
        return max(SHORTEST_SECONDS, shards / SHARDS_A_SECOND)

    async def _look(self) -> bytes:
        trouble = None
        try:
            found = await self._fleet.read()
        except KinesumerError as error:
            trouble = escape_unprintable(str(error))
        else:
            await self._measure(found)
            self._saw(found)
        return self._draw(trouble)

    async def _measure(self, found: Snapshot) -> None:
        """Take over what Kinesis told, and ask again: many shards take their time."""
        if self._measuring is None:
            self._measuring = asyncio.create_task(self._fleet.measure(found))
        await asyncio.wait({self._measuring}, timeout=MEASURING_SECONDS)
        if self._measuring.done():
            self._measured = self._measuring.result()
            self._measuring = None
            self._hour.add(
                self._clock.wall(), self._behind(found), self._measured.rates
            )

    def _behind(self, found: Snapshot) -> dict[str, float]:
        millis = self._measured.lags.millis
        return {
            arn: max(known)
            for arn, page in found.shards.items()
            if (known := [millis[row.key] for row in page if row.key in millis])
        }

    def _saw(self, found: Snapshot) -> None:
        before = self._sighting
        lags = self._measured.lags.millis
        self._sighting = observe(before, found, lags, self._clock.now())
        names = {member.client_id for member in found.alive}
        self._slots = palette.assign_slots(self._slots, names)
        for event in events.find_events(before, self._sighting) if before else ():
            self._happened += 1
            at = self._clock.wall()
            self._events.append(
                msgspec.structs.replace(event, number=self._happened, at=at)
            )

    def _draw(self, trouble: str | None) -> bytes:
        sighting = self._sighting or Observation(NOBODY, self._clock.now())
        seen = ViewInput(
            sighting=sighting,
            at=self._clock.wall(),
            every_seconds=self._every_seconds(),
            lags=self._measured.lags,
            rates=self._measured.rates,
            slots=self._slots,
            events=tuple(self._events),
            history=self._hour.lines(),
            trouble=trouble,
        )
        return msgspec.json.encode(build_state(self._about, seen))
