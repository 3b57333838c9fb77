"""Poll a fleet while pages are open, and send its state to them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from kinesumer.admin.connect import NO_ROLES, Roles
from kinesumer.admin.lag import Lags, read_lags
from kinesumer.admin.observation import Observation, observe
from kinesumer.admin.snapshot import Snapshot, read_snapshot
from kinesumer.dashboard import events
from kinesumer.dashboard.history import LagHistory
from kinesumer.dashboard.throughput import Throughput
from kinesumer.dashboard.view_model import (
    DashboardInfo,
    ViewInput,
    assign_slots,
    build_state,
)
from kinesumer.errors import KinesumerError
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from kinesumer.aws.session import ClientFactory
    from kinesumer.dashboard.model import Event
    from kinesumer.ports import Clock, StateStore

MIN_INTERVAL_SECONDS = 2.0
SHARDS_PER_SECOND = 250
"""A poll reads every shard's row, so larger fleets are polled less often."""
MEASURING_SECONDS = 1.0
"""A poll waits this long for Kinesis; the next poll shows later results."""
COUNTING_SECONDS = 10.0
"""Clients store positions every five seconds, so positions are compared less often."""
RETAINED_EVENTS = 200


class StreamMeasurements(NamedTuple):
    """The lags and rates that were measured by reading the streams."""

    lags: Lags
    rates: Mapping[str, float]
    """Records per second by stream; streams with an unknown rate are missing."""


class FleetSource(Protocol):
    """The source of the dashboard's data: one app, observed from outside."""

    async def read(self) -> Snapshot:
        """Return all rows. Raises KinesumerError."""
        ...

    async def measure(self, snapshot: Snapshot) -> StreamMeasurements:
        """Measure lags and rates; the lags list the streams that can't be read."""
        ...


class StoreFleetSource:
    """Reads an app from the state store and Kinesis."""

    def __init__(
        self,
        app: str,
        clients: ClientFactory,
        store: StateStore,
        clock: Clock,
        roles: Roles = NO_ROLES,
    ) -> None:
        self._app, self._clients, self._store = app, clients, store
        self._clock, self._roles = clock, roles
        self._throughput = Throughput(clients, roles)
        self._rates: Mapping[str, float] = {}
        self._counted_at = -COUNTING_SECONDS

    async def read(self) -> Snapshot:
        """Return all rows. Raises KinesumerError."""
        return await read_snapshot(self._store, self._app)

    async def measure(self, snapshot: Snapshot) -> StreamMeasurements:
        """Measure lags and rates; the lags list the streams that can't be read."""
        lags, _ = await asyncio.gather(
            read_lags(self._clients, snapshot.shards, self._roles),
            self._measure_rates(snapshot),
        )
        return StreamMeasurements(lags, self._rates)

    async def _measure_rates(self, snapshot: Snapshot) -> None:
        now = self._clock.now()
        if now - self._counted_at < COUNTING_SECONDS:
            return
        self._counted_at = now
        positions = {
            row.key: row.position
            for page in snapshot.shards.values()
            for row in page
            if row.position is not None
        }
        self._rates = await self._throughput.measure(positions, now)


NO_ROWS = Snapshot([], None, [], {})
NO_MEASUREMENTS = StreamMeasurements(Lags({}, {}), {})


class Poller:
    """Polls one fleet for all open pages: more pages don't cause more reads."""

    def __init__(self, info: DashboardInfo, fleet: FleetSource, clock: Clock) -> None:
        self._info, self._fleet, self._clock = info, fleet, clock
        self._observation: Observation | None = None
        self._measured = NO_MEASUREMENTS
        self._measuring: asyncio.Task[StreamMeasurements] | None = None
        self._history = LagHistory()
        self._events: deque[Event] = deque(maxlen=RETAINED_EVENTS)
        self._event_count = 0
        self._slots: dict[str, int] = {}
        self._state = b""
        self._state_number = 0
        self._pages = 0
        self._ended = False
        self._changed = asyncio.Condition()
        self._wake = asyncio.Event()

    @property
    def observation(self) -> Observation | None:
        """The last successful observation."""
        return self._observation

    def wake(self) -> None:
        """Poll now, after a change."""
        self._wake.set()

    async def states(self) -> AsyncGenerator[bytes]:
        """Yield the newest state as JSON, then each later one.

        A slow reader skips states; each state is complete.
        """
        known = 0
        if not self._pages:
            # No page was open, so the newest state may be old.
            known = self._state_number
            self._wake.set()
        self._pages += 1
        try:
            while state := await self._later_than(known):
                known = self._state_number
                yield state
        finally:
            self._pages -= 1

    async def _later_than(self, number: int) -> bytes:
        """Wait for a later state; return b"" when the states end."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._ended or self._state_number > number
            )
        return b"" if self._ended else self._state

    async def end(self) -> None:
        """End the states of every page."""
        self._ended = True
        async with self._changed:
            self._changed.notify_all()

    async def run(self) -> None:
        """Poll until cancelled, but only while a page is open."""
        try:
            while True:
                await self._wait()
                state = await self._poll()
                async with self._changed:
                    self._state, self._state_number = state, self._state_number + 1
                    self._changed.notify_all()
        finally:
            self._forget_measurements()

    async def _wait(self) -> None:
        """Wait until the next poll is due; without pages, until a page opens."""
        timeout = self._interval_seconds() if self._pages else None
        if timeout is None:
            # After the wait these measurements would be outdated.
            self._forget_measurements()
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    def _forget_measurements(self) -> None:
        self._measured = NO_MEASUREMENTS
        if self._measuring is not None:
            self._measuring.cancel()
            self._measuring = None

    def _interval_seconds(self) -> float:
        snapshot = self._observation.snapshot if self._observation else NO_ROWS
        shards = sum(len(page) for page in snapshot.shards.values())
        return max(MIN_INTERVAL_SECONDS, shards / SHARDS_PER_SECOND)

    async def _poll(self) -> bytes:
        error_text = None
        try:
            snapshot = await self._fleet.read()
        except KinesumerError as error:
            error_text = escape_unprintable(str(error))
        else:
            await self._measure(snapshot)
            self._observe(snapshot)
        return self._encode_state(error_text)

    async def _measure(self, snapshot: Snapshot) -> None:
        """Adopt finished measurements; measuring many shards may take several polls."""
        if self._measuring is None:
            self._measuring = asyncio.create_task(self._fleet.measure(snapshot))
        await asyncio.wait({self._measuring}, timeout=MEASURING_SECONDS)
        if self._measuring.done():
            self._measured = self._measuring.result()
            self._measuring = None
            lags = self._stream_lags(snapshot)
            self._history.add(self._clock.wall(), lags, self._measured.rates)

    def _stream_lags(self, snapshot: Snapshot) -> dict[str, float]:
        millis = self._measured.lags.millis
        return {
            arn: max(known)
            for arn, page in snapshot.shards.items()
            if (known := [millis[row.key] for row in page if row.key in millis])
        }

    def _observe(self, snapshot: Snapshot) -> None:
        before = self._observation
        lags = self._measured.lags.millis
        self._observation = observe(before, snapshot, lags, self._clock.now())
        ids = {member.client_id for member in snapshot.alive}
        self._slots = assign_slots(self._slots, ids)
        for event in events.find_events(before, self._observation) if before else ():
            self._event_count += 1
            at = self._clock.wall()
            self._events.append(
                msgspec.structs.replace(event, number=self._event_count, at=at)
            )

    def _encode_state(self, trouble: str | None) -> bytes:
        observation = self._observation or Observation(NO_ROWS, self._clock.now())
        view = ViewInput(
            observation=observation,
            at=self._clock.wall(),
            every_seconds=self._interval_seconds(),
            lags=self._measured.lags,
            rates=self._measured.rates,
            slots=self._slots,
            events=tuple(self._events),
            history=self._history.lines(),
            trouble=trouble,
        )
        return msgspec.json.encode(build_state(self._info, view))
