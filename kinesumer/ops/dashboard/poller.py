"""Poll a fleet, more often while pages are open, and send its state to them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

import msgspec

from kinesumer.aws.session import ClientFactory
from kinesumer.core.liveness import interval_seconds
from kinesumer.errors import KinesumerError
from kinesumer.ops.dashboard import events
from kinesumer.ops.dashboard.model import (
    DashboardInfo,
    Event,
    StreamHistory,
    assign_slots,
    build_state,
)
from kinesumer.ops.group.connect import NO_ROLES, Roles
from kinesumer.ops.group.lag import NO_LAGS, Lags, read_lags
from kinesumer.ops.group.observation import MIN_INTERVAL_SECONDS, Observation, observe
from kinesumer.ops.group.records import MAX_RECORDS
from kinesumer.ops.group.snapshot import Snapshot, read_snapshot
from kinesumer.ops.group.status import report
from kinesumer.ports import Clock, StateStore
from kinesumer.runtime.tasks import wait_and_clear
from kinesumer.runtime.text import escape_unprintable

# The interval while no page is open. These polls keep the history and the events, and
# cost little. A chart draws values up to a minute apart as one line.
IDLE_SECONDS = 30.0
# The time for which a poll waits for results from Kinesis. Later ones are shown by
# the next poll.
MEASURING_SECONDS = 1.0


class StoreFleetSource:
    """Reads an app from the state store and Kinesis."""

    def __init__(
        self,
        app: str,
        clients: ClientFactory,
        store: StateStore,
        roles: Roles = NO_ROLES,
    ) -> None:
        self._app, self._clients = app, clients
        self._store, self._roles = store, roles

    async def read(self) -> Snapshot:
        """Return all rows. Raises KinesumerError."""
        return await read_snapshot(self._store, self._app)

    async def read_lags(self, snapshot: Snapshot) -> Lags:
        """Read the lags, and name the streams that can't be read."""
        return await read_lags(self._clients, snapshot.shards, self._roles)


NO_ROWS = Snapshot([], None, [], {})


class Poller:
    """Polls one fleet for all open pages. More pages don't cause more reads."""

    def __init__(
        self, info: DashboardInfo, fleet: StoreFleetSource, clock: Clock
    ) -> None:
        self._info, self._fleet, self._clock = info, fleet, clock
        self._observation: Observation | None = None
        self._report = report(info.app, info.table, Observation(NO_ROWS))
        self._lags = NO_LAGS
        self._measured_at: float | None = None
        self._measuring: asyncio.Task[Lags] | None = None
        self._history = StreamHistory()
        self._events: deque[Event] = deque(maxlen=MAX_RECORDS)
        self._event_count = 0
        self._slots: dict[str, int] = {}
        self._stream_slots: dict[str, int] = {}
        self._state = b""
        self._state_number = 0
        self._pages = 0
        self._ended = False
        self._changed = asyncio.Condition()
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Poll now, so that pages show a change at once."""
        self._wake.set()

    async def states(self) -> AsyncGenerator[bytes]:
        """Yield the newest state as JSON, then later ones. Slow callers miss some."""
        known = 0
        if not self._pages:
            # No page is open, so skip the newest state, which may be old.
            known = self._state_number
            self._wake.set()
        self._pages += 1  # run() polls more often while there are pages
        try:
            while state := await self._later_than(known):
                known = self._state_number
                yield state
        finally:
            self._pages -= 1

    async def _later_than(self, number: int) -> bytes:
        """Wait for a later state, and return it; return b"" after ``end()``."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._ended or self._state_number > number
            )
        return b"" if self._ended else self._state

    async def end(self) -> None:
        """End the iteration of ``states()`` for every page."""
        self._ended = True
        async with self._changed:
            self._changed.notify_all()

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            while True:
                await self._wait()
                state = await self._poll()
                async with self._changed:
                    self._state, self._state_number = state, self._state_number + 1
                    self._changed.notify_all()
        finally:
            if self._measuring is not None:
                self._measuring.cancel()

    async def _wait(self) -> None:
        """Wait until the next poll is due, or a page opens."""
        seconds = self._interval_seconds()
        if not self._pages:
            seconds = max(seconds, IDLE_SECONDS)
        await wait_and_clear(self._wake, seconds)

    def _interval_seconds(self) -> float:
        shards = sum(len(stream.shards) for stream in self._report.streams)
        # A poll reads every shard's row, so larger fleets are polled less often: the
        # rows are read at the rate at which the rows of clients are written.
        return interval_seconds(MIN_INTERVAL_SECONDS, shards)

    async def _poll(self) -> bytes:
        error_text = None
        try:
            snapshot = await self._fleet.read()
        except KinesumerError as error:
            error_text = escape_unprintable(str(error))
        else:
            is_measured = await self._measure(snapshot)
            self._observe(snapshot)
            # The charts get new measurements only, and don't repeat the last values.
            if is_measured:
                self._history.add(self._clock.wall(), self._report.streams)
        return self._encode_state(error_text)

    async def _measure(self, snapshot: Snapshot) -> bool:
        """Start a measurement if none runs; return whether one has just finished."""
        if self._measuring is None:
            # At most one measurement runs, however slow Kinesis is.
            self._measuring = asyncio.create_task(self._fleet.read_lags(snapshot))
        # Measuring many shards may take several polls.
        await asyncio.wait({self._measuring}, timeout=MEASURING_SECONDS)
        if not self._measuring.done():
            return False
        self._lags = self._measuring.result()
        self._measured_at = self._clock.now()
        self._measuring = None
        return True

    def _observe(self, snapshot: Snapshot) -> None:
        before = self._observation
        observation = observe(before, snapshot, self._lags, self._clock.now())
        ids = {member.client_id for member in snapshot.alive}
        self._slots = assign_slots(self._slots, ids)
        # The charts still show streams whose rows were deleted.
        arns = self._stream_slots.keys() | snapshot.shards.keys()
        self._stream_slots = assign_slots(self._stream_slots, arns)
        for event in events.find_events(before, observation) if before else ():
            self._event_count += 1
            at = self._clock.wall()
            self._events.append(
                msgspec.structs.replace(event, number=self._event_count, at=at)
            )
        self._observation = observation
        self._report = report(self._info.app, self._info.table, observation)

    def _age(self, at: float | None) -> float | None:
        return None if at is None else round(self._clock.now() - at, 1)

    def _encode_state(self, trouble: str | None) -> bytes:
        read_at = self._observation.at if self._observation else None
        age_seconds, lag_age_seconds = self._age(read_at), self._age(self._measured_at)
        state = build_state(
            self._report,
            self._stream_slots,
            info=self._info,
            at=self._clock.wall() - (age_seconds or 0),
            age_seconds=age_seconds,
            lag_age_seconds=lag_age_seconds,
            every_seconds=self._interval_seconds(),
            slots=self._slots,
            events=list(self._events),
            history=self._history.lines(self._stream_slots),
            trouble=trouble,
        )
        return msgspec.json.encode(state)
