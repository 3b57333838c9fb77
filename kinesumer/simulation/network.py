"""Both ports behind a network that delays, loses and repeats calls.

The service carries out a request even if the machine is frozen or dead
when the answer arrives.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kinesumer.errors import (
    ExpiredIteratorError,
    KinesumerError,
    SlowAnswerError,
    SourceThrottledError,
    SourceUnavailableError,
    StoreThrottledError,
    StoreUnavailableError,
)
from kinesumer.runtime.timeouts import timeout

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page
    from kinesumer.model.rows import Key, Row
    from kinesumer.model.streams import Shard, Start, StreamInfo
    from kinesumer.ports import Reservation, Write, WriteResult
    from kinesumer.simulation.bandwidth import SharedLink
    from kinesumer.simulation.machine import Machine
    from kinesumer.simulation.memory_kinesis import MemorySource
    from kinesumer.simulation.memory_store import MemoryStore

T = TypeVar("T")

ANSWER_SECONDS = 30.0
"""How long a client waits for a page …"""
STORE_ANSWER_SECONDS = 5.0
"""… and for the store's answer."""
SLOW_SECONDS = 0.5
"""A network that is slower excuses a client that is late."""
LATE_SECONDS = 60.0
"""The longest delay of a late or repeated request."""
STALE_SECONDS = 5.0
"""The greatest age of an eventually consistent read."""


@dataclass
class NetworkConditions:
    """The faults of the network between one machine and one service.

    Rates are probabilities per request; those up to ``failing`` exclude each other, and
    the first ones win.
    """

    latency: float = 0.01
    lost: float = 0.0
    """The request never arrives: a timeout."""
    unanswered: float = 0.0
    """It is carried out, but the answer never arrives: a timeout."""
    late: float = 0.0
    """A timeout, but it is carried out up to a minute later."""
    twice: float = 0.0
    """Carried out and answered, and once more up to a minute later."""
    throttled: float = 0.0
    failing: float = 0.0
    """Answered with a 500; every third was carried out."""
    stale: float = 0.0
    """Share of eventually consistent reads that are old."""
    expired: float = 0.0
    """Share of iterators that have expired."""
    short: float = 0.0
    """Share of pages that hold only a few records."""
    cut_off: float = 0.0
    """Share of shard lists that are incomplete."""
    skew: float = 0.0
    """Greatest error of the clocks of Kinesis's servers, in seconds."""

    def __post_init__(self) -> None:
        """Begin without faults."""
        self.last_disturbed_at = -math.inf
        """When a request was last lost, or slow."""
        self.update()

    def update(self) -> None:
        """Derive the sums from changed rates."""
        self.bad = (
            self.lost
            + self.unanswered
            + self.late
            + self.twice
            + self.throttled
            + self.failing
        )
        self.is_disturbed = bool(self.bad) or self.latency > SLOW_SECONDS

    def set(self, **rates: float) -> None:
        """Change rates."""
        for name, rate in rates.items():
            if not hasattr(self, name):
                raise AttributeError(name)
            setattr(self, name, rate)
        self.update()

    def clear(self, *names: str) -> None:
        """Reset the named rates, or all of them."""
        for each in fields(self):
            if not names or each.name in names:
                setattr(self, each.name, each.default)
        self.update()


class WriteObserver(Protocol):
    """Observes writes: the checker."""

    def sent(self, machine: Machine, write: Write) -> None:
        """Check a write that a machine sends."""

    def answered(self, machine: Machine, write: Write, written: WriteResult) -> None:
        """Observe that a write's answer reached its machine."""

    def writes(self, machine: Machine) -> None:
        """Observe that the store's next write is this machine's."""


class MachineDeadError(RuntimeError):
    """Cleanup code of a killed machine made a call."""


class Link:
    """One machine's link to one service. ``thread`` waits for the answers."""

    def __init__(
        self,
        machine: Machine,
        random: random.Random,
        throttled: type[KinesumerError],
        unavailable: type[KinesumerError],
        answer_seconds: float = math.inf,
        thread: Machine | None = None,
    ) -> None:
        self.machine = machine
        self.random = random
        self.network = NetworkConditions()
        self._thread = thread or machine
        self._answer_seconds = answer_seconds
        self._throttled, self._unavailable = throttled, unavailable

    async def call(self, act: Callable[[], T]) -> T:
        """Send a request; return or raise the service's answer."""
        machine, network = self.machine, self.network
        if not machine.alive:
            raise MachineDeadError(machine.name)
        loop = machine.loop
        future: asyncio.Future[T] = loop.create_future()
        draw = self.random.random
        there = loop.real + network.latency * (0.2 + draw())
        due = self._thread.timers_now() + self._answer_seconds
        if network.is_disturbed:
            network.last_disturbed_at = loop.real
        if not network.bad or (choice := draw()) >= network.bad:
            loop.at_real(there, self._serve, act, future, due)
        else:
            self._inject_failure(choice, there, act, future, due)
        return await future

    def _inject_failure(
        self,
        choice: float,
        there: float,
        act: Callable[[], T],
        future: asyncio.Future[T],
        due: float,
    ) -> None:
        network, loop, draw = self.network, self.machine.loop, self.random.random
        timeout = loop.real + 0.5 + 5 * draw()
        later = there + LATE_SECONDS * draw()
        if (choice := choice - network.lost) < 0:
            self._fail_at(timeout, future, "timed out")
        elif (choice := choice - network.unanswered) < 0:
            loop.at_real(there, _ignore_error, act)
            self._fail_at(timeout, future, "timed out, unanswered")
        elif (choice := choice - network.late) < 0:
            loop.at_real(later, _ignore_error, act)
            self._fail_at(timeout, future, "timed out, late")
        elif (choice := choice - network.twice) < 0:
            loop.at_real(there, self._serve, act, future, due)
            loop.at_real(later, _ignore_error, act)
        elif (choice := choice - network.throttled) < 0:
            error = self._throttled("throttled")
            loop.at_real(there + network.latency, _answer, future, None, error)
        else:
            if draw() < 0.33:
                loop.at_real(there, _ignore_error, act)
            self._fail_at(there + network.latency, future, "internal error")

    def _serve(
        self, act: Callable[[], T], future: asyncio.Future[T], due: float
    ) -> None:
        result: T | None = None
        error: KinesumerError | None = None
        try:
            result = act()
        except KinesumerError as caught:
            error = caught
        loop = self.machine.loop
        back = loop.real + self.network.latency * (0.2 + self.random.random())
        loop.at_real(back, self._deliver, future, due, result, error)

    def _deliver(
        self,
        future: asyncio.Future[T],
        due: float,
        result: T | None,
        error: KinesumerError | None = None,
    ) -> None:
        """Deliver an answer, unless it times out before the thread runs."""
        if self._thread.is_blocked_past(due):
            error = self._unavailable("timed out before the answer was read")
        _answer(future, result, error)

    def _fail_at(self, when: float, future: asyncio.Future[T], why: str) -> None:
        self.machine.loop.at_real(when, _answer, future, None, self._unavailable(why))


def _answer(
    future: asyncio.Future[Any], result: object, error: KinesumerError | None
) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _ignore_error(act: Callable[[], object]) -> None:
    try:
        act()
    except KinesumerError:
        return


class LinkedStore(Link):
    """The ports.StateStore of one machine."""

    def __init__(
        self,
        machine: Machine,
        random: random.Random,
        store: MemoryStore,
        observer: WriteObserver,
        network: NetworkConditions | None = None,
        thread: Machine | None = None,
    ) -> None:
        super().__init__(
            machine,
            random,
            StoreThrottledError,
            StoreUnavailableError,
            STORE_ANSWER_SECONDS,
            thread,
        )
        self.network = network or self.network
        self._store = store
        self._observer = observer

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row, which may be old unless ``consistent`` is true."""
        age = 0.0 if consistent else self._age()
        return await self.call(
            lambda: self._store.get_now(key, consistent=consistent, age=age)
        )

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return rows, which may be old unless ``consistent`` is true."""
        age = 0.0 if consistent else self._age()
        return await self.call(
            lambda: self._store.query_now(
                pk, first=first, last=last, consistent=consistent, age=age
            )
        )

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write, once, later, twice or not at all."""
        if not self.machine.alive:
            raise MachineDeadError(self.machine.name)
        self._observer.sent(self.machine, write)
        written = await self.call(lambda: self._write(write))
        self._observer.answered(self.machine, write, written)
        return written

    async def query_not_updated_since(self, pk: str, moment: str) -> list[Key]:
        """Query the index, which may be old."""
        age = self._age()
        return await self.call(
            lambda: self._store.not_updated_since_now(pk, moment, age=age)
        )

    async def verify(self) -> str:
        """Return the table's id."""
        return await self.call(self._store.verify_now)

    def _write(self, write: Write) -> WriteResult:
        self._observer.writes(self.machine)
        return self._store.write_now(write)

    def _age(self) -> float:
        if self.random.random() >= self.network.stale:
            return 0.0
        return STALE_SECONDS * self.random.random()


class LinkedSource(Link):
    """The ports.StreamSource of one machine and stream."""

    def __init__(
        self,
        machine: Machine,
        random: random.Random,
        source: MemorySource,
        network: NetworkConditions,
        line: SharedLink | None = None,
    ) -> None:
        # A blocked thread reads its answers before its timeouts fire.
        super().__init__(machine, random, SourceThrottledError, SourceUnavailableError)
        self.network = network
        self._source = source
        self._line = line

    async def describe(self) -> StreamInfo:
        """Return the stream, with the time of a server whose clock may be wrong."""
        info = await self.call(self._source.describe_now)
        if self.network.skew:
            info = info._replace(now=info.now + self._skew())
        return info

    async def list_shards(self) -> Sequence[Shard]:
        """Return the shards, sometimes not all of them."""
        shards = await self.call(self._source.list_shards_now)
        if self.random.random() < self.network.cut_off:
            return shards[: self.random.randrange(len(shards))]
        return shards

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Return a connection at once: there is no limit."""
        return nullcontext()

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator."""
        skew = self._skew() if self.network.skew else 0.0
        return await self.call(
            lambda: self._source.get_iterator_now(shard_id, after, skew=skew)
        )

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return a page, sometimes a short one. Raises ExpiredIteratorError."""
        network = self.network
        if network.expired and self.random.random() < network.expired:
            raise ExpiredIteratorError("the iterator has expired")
        if network.short and self.random.random() < network.short:
            limit = min(limit, self.random.randrange(1, 4))
        page = await self.call(lambda: self._source.get_records_now(iterator, limit))
        if reservation is not None and not reservation.covers(page.wire_bytes):
            await reservation.grow(page.wire_bytes)
        if self._line is not None and self._line.bytes_per_second:
            await self._carry(self._line, page)
        return page

    async def _carry(self, line: SharedLink, page: Page) -> None:
        """Carry a page over the link. Raises SlowAnswerError if it takes too long."""
        future: asyncio.Future[None] = self.machine.loop.create_future()
        transfer = line.carry(
            page.wire_bytes, lambda: _answer(future, None, error=None)
        )
        try:
            async with timeout(ANSWER_SECONDS):
                await future
        except TimeoutError:
            raise SlowAnswerError("timed out while the answer arrived") from None
        finally:
            line.drop(transfer)

    def _skew(self) -> float:
        return self.network.skew * (2 * self.random.random() - 1)

    def _serve(
        self, act: Callable[[], T], future: asyncio.Future[T], due: float
    ) -> None:
        # A read needs no delay for its answer, since it changes nothing.
        try:
            result = act()
        except KinesumerError as error:
            self._deliver(future, due, None, error)
        else:
            self._deliver(future, due, result)
