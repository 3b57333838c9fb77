"""A network that delays, loses and repeats the clients' requests to the services.

A service carries out a request even if the client's machine is frozen or dead when the
answer arrives.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from random import Random
from typing import Any, ClassVar, NamedTuple, TypeVar

from kinesumer.aws import dynamodb_calls
from kinesumer.errors import (
    ExpiredIteratorError,
    KinesumerError,
    SourceThrottledError,
    SourceUnavailableError,
    StoreThrottledError,
    StoreUnavailableError,
    TransientError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.rows import Key, Row
from kinesumer.model.streams import Shard, Start, StreamInfo
from kinesumer.ports import Write, WriteResult
from kinesumer.testing.simulation.invariants.checker import InvariantChecker
from kinesumer.testing.simulation.machine import Machine, SharedLink
from kinesumer.testing.simulation.memory_kinesis import MemoryKinesis, MemorySource
from kinesumer.testing.simulation.memory_store import STALE_SECONDS, MemoryStore
from kinesumer.testing.simulation.scenarios import MAX_FAULT_SECONDS

T = TypeVar("T")

# A delay of the network that is longer than this excuses a late client.
SLOW_SECONDS = 0.5
FAILURES = ("lost", "unanswered", "late", "twice", "throttled", "refused", "failing")


@dataclass
class NetworkConditions:
    """The faults of the network between one machine and one service.

    Rates are probabilities per request. A request has at most one of ``FAILURES``.
    """

    latency: float = 0.01
    lost: float = 0.0  # the request is lost, so the client times out
    unanswered: float = 0.0  # carried out, but the answer is lost
    late: float = 0.0  # carried out up to a minute after the timeout
    twice: float = 0.0  # answered, and carried out again up to a minute later
    throttled: float = 0.0
    refused: float = 0.0  # refused because of the credentials, so not carried out
    failing: float = 0.0  # status 500, although every third request is carried out
    stale: float = 0.0  # share of eventually consistent reads that return old rows
    expired: float = 0.0  # share of iterators that have expired
    short: float = 0.0  # share of pages that hold only a few records
    coarse: float = 0.0  # share of starts by time that begin up to a second early
    cut_off: float = 0.0  # share of shard lists that are incomplete
    no_iterator: float = 0.0  # share of pages without an iterator and children
    skew: float = 0.0  # greatest error of the clocks of Kinesis's servers, in seconds

    def __post_init__(self) -> None:
        """Begin without faults."""
        # The time of the last request that could be lost or slow.
        self.last_disturbed_at: float = -math.inf
        self._update()

    def _update(self) -> None:
        self.bad: int = sum([getattr(self, name) for name in FAILURES])
        self.is_disturbed: bool = bool(self.bad) or self.latency > SLOW_SECONDS

    def set(self, **rates: float) -> None:
        """Change the given rates."""
        for name, rate in rates.items():
            if not hasattr(self, name):
                raise AttributeError(name)
            setattr(self, name, rate)
        self._update()

    def clear(self, *names: str) -> None:
        """Reset the rates with these names, or all rates."""
        for each in fields(self):
            if not names or each.name in names:
                setattr(self, each.name, each.default)
        self._update()


class MachineDeadError(RuntimeError):
    """Cleanup code of a killed machine made a call."""


class _Request(NamedTuple):
    """A request in transit, and the future that receives its answer."""

    act: Callable[[], Any]
    future: asyncio.Future[Any]
    due: float  # when the client's time-out is due, on its timers


@dataclass(eq=False)
class Link:
    """One machine's link to one service."""

    throttled: ClassVar[type[KinesumerError]]
    unavailable: ClassVar[type[TransientError]]
    answer_seconds: ClassVar[float]

    machine: Machine
    random: Random
    network: NetworkConditions

    @property
    def thread(self) -> Machine:
        """The thread that waits for the answers."""
        return self.machine

    async def call(self, act: Callable[[], T]) -> T:
        """Send a request. Return the service's answer or raise its error."""
        machine, network = self.machine, self.network
        if not machine.alive:
            raise MachineDeadError(machine.name)
        loop = machine.loop
        future: asyncio.Future[T] = loop.create_future()
        draw = self.random.random
        there = loop.real + network.latency * (0.2 + draw())
        due = self.thread.timers_now() + self.answer_seconds
        request = _Request(act, future, due)
        if network.is_disturbed:
            network.last_disturbed_at = loop.real
        if not network.bad or (choice := draw()) >= network.bad:
            loop.at_real(there, self._serve, request)
        else:
            self._inject_failure(choice, there, request)
        return await future

    def _has(self, rate: float) -> bool:
        """Draw whether a fault of this rate happens now."""
        return bool(rate) and self.random.random() < rate

    def _inject_failure(self, choice: float, there: float, request: _Request) -> None:
        network, loop, draw = self.network, self.machine.loop, self.random.random
        timeout = loop.real + 0.5 + 5 * draw()
        later, back = there + MAX_FAULT_SECONDS * draw(), there + network.latency
        if (choice := choice - network.lost) < 0:
            self._fail_at(timeout, request, "timed out")
        elif (choice := choice - network.unanswered) < 0:
            loop.at_real(there, _serve_unanswered, request)
            self._fail_at(timeout, request, "timed out, unanswered")
        elif (choice := choice - network.late) < 0:
            loop.at_real(later, _serve_unanswered, request)
            self._fail_at(timeout, request, "timed out, late")
        elif (choice := choice - network.twice) < 0:
            loop.at_real(there, self._serve, request)
            loop.at_real(later, _serve_unanswered, request)
        elif (choice := choice - network.throttled) < 0:
            error = self.throttled("throttled")
            loop.at_real(back, _answer, request.future, None, error)
        elif (choice := choice - network.refused) < 0:
            lacking = self.unavailable("AWS has refused the credentials")
            lacking.lacks_credentials = True
            loop.at_real(back, _answer, request.future, None, lacking)
        else:
            if draw() < 0.33:
                loop.at_real(there, _serve_unanswered, request)
            self._fail_at(back, request, "internal error")

    def _serve(self, request: _Request) -> None:
        result = error = None
        try:
            result = request.act()
        except KinesumerError as caught:
            error = caught
        self._return(request, result, error)

    def _return(
        self, request: _Request, result: object, error: KinesumerError | None
    ) -> None:
        loop = self.machine.loop
        back = loop.real + self.network.latency * (0.2 + self.random.random())
        loop.at_real(back, self._deliver, request, result, error)

    def _deliver(
        self, request: _Request, result: object, error: KinesumerError | None
    ) -> None:
        """Deliver an answer, or an error if the thread runs after the time-out."""
        if self.thread.is_blocked_past(request.due):
            error = self.unavailable("timed out before the answer was read")
        _answer(request.future, result, error)

    def _fail_at(self, when: float, request: _Request, why: str) -> None:
        error = self.unavailable(why)
        self.machine.loop.at_real(when, _answer, request.future, None, error)


def _answer(
    future: asyncio.Future[Any], result: object, error: KinesumerError | None
) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _serve_unanswered(request: _Request) -> None:
    with suppress(KinesumerError):
        request.act()


@dataclass(eq=False)
class LinkedStore(Link):
    """The ports.StateStore that one machine uses over its link."""

    throttled = StoreThrottledError
    unavailable = StoreUnavailableError
    answer_seconds = dynamodb_calls.ANSWER_SECONDS

    store: MemoryStore
    checker: InvariantChecker
    answer_thread: Machine | None = None

    @property
    def thread(self) -> Machine:
        """The thread that waits for the answers, by default the machine's first."""
        return self.answer_thread or self.machine

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row, which may be old unless ``consistent`` is true."""
        age = 0.0 if consistent else self._age()
        get = self.store.get_now
        return await self.call(partial(get, key, consistent=consistent, age=age))

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return rows, which may be old unless ``consistent`` is true."""
        age = 0.0 if consistent else self._age()
        query = partial(self.store.query_now, consistent=consistent, age=age)
        return await self.call(partial(query, pk, first=first, last=last))

    async def write(self, write: Write) -> WriteResult:
        """Send one conditional write, which may be applied late, twice or never."""
        if not self.machine.alive:
            raise MachineDeadError(self.machine.name)
        self.checker.sent(self.machine, write)
        written = await self.call(partial(self._write, write))
        self.checker.answered(self.machine, write, written)
        return written

    async def query_not_updated_since(self, pk: str, moment: str) -> list[Key]:
        """Return keys from the index, which may be out of date."""
        age = self._age()
        query = self.store.not_updated_since_now
        return await self.call(partial(query, pk, moment, age=age))

    async def verify(self) -> str:
        """Return the table's id."""
        return await self.call(self.store.verify_now)

    def _write(self, write: Write) -> WriteResult:
        self.checker.writer = self.machine
        return self.store.write_now(write)

    def _age(self) -> float:
        if not self._has(self.network.stale):
            return 0.0
        return STALE_SECONDS * self.random.random()


@dataclass(eq=False)
class LinkedSource(Link, MemorySource):
    """The ports.StreamSource that one machine uses for a stream over its link."""

    throttled = SourceThrottledError
    unavailable = SourceUnavailableError
    # No time-out: after a block, a thread reads its answers before time-outs fire.
    answer_seconds = math.inf

    kinesis: MemoryKinesis
    name: str
    line: SharedLink | None = None

    async def describe(self) -> StreamInfo:
        """Return the stream, with the time of a server whose clock may be wrong."""
        info = await super().describe()
        return info._replace(now=info.now + self.skew())

    async def list_shards(self) -> Sequence[Shard]:
        """Return the shards, sometimes not all of them."""
        shards = await super().list_shards()
        if self._has(self.network.cut_off):
            return shards[: self.random.randrange(len(shards))]
        return shards

    async def _place(self, shard_id: str, after: Position | Start) -> str:
        if isinstance(after, Start) and after.timestamp is not None:
            if self._has(self.network.coarse):
                after = Start(type=after.type, timestamp=after.timestamp // 1)
        get = partial(self.get_iterator_now, shard_id, after, skew=self.skew())
        return await self.call(get)

    async def read_page(self, iterator: str, limit: int) -> Page:
        """Return a page, sometimes a short one. Raises ExpiredIteratorError."""
        if self._has(self.network.expired):
            raise ExpiredIteratorError("the iterator has expired")
        if self._has(self.network.short):
            limit = min(limit, self.random.randrange(1, 4))
        page = await super().read_page(iterator, limit)
        if self._has(self.network.no_iterator):
            page = page._replace(next_iterator=None, children=())
        return page

    async def arrival(self, page: Page) -> None:
        """Carry a page over the link. Raises SlowAnswerError if it takes too long."""
        line = self.line
        if line is not None and line.bytes_per_second:
            await line.arrival(page.wire_bytes)

    def skew(self) -> float:
        """Draw the error of the clock of the server that answers next."""
        most = self.network.skew
        return most * (2 * self.random.random() - 1) if most else 0.0

    def _return(
        self, request: _Request, result: object, error: KinesumerError | None
    ) -> None:
        # Answer at once: the request's delay is enough, since reads change nothing.
        self._deliver(request, result, error)
