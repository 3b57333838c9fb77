"""Poll shards: choose the format, reserve memory, and confirm the end of a shard."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

from kinesumer.aws.errors import (
    AwsFailure,
    failure_of,
    foreign,
    translated_errors,
)
from kinesumer.core.lineage import NextStep, after_page, find, is_past_end
from kinesumer.errors import (
    ExpiredIteratorError,
    InvalidPositionError,
    KeyUnavailableError,
    KinesumerError,
    ShardMissingError,
    SlowAnswerError,
    SourceThrottledError,
    SourceUnavailableError,
    StartInFutureError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.streams import Shard, Start
from kinesumer.ports import Polled, Reservation
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import Countdown, timeout
from kinesumer.runtime.threads import is_refusal
from kinesumer.wire.cbor import compiled

Answer = TypeVar("Answer")

# Time limit for a whole response. A call also fails if no byte arrives for 10 s.
# A link of 3 Mbit/s carries the largest answer, of 10 MiB, in this time.
ANSWER_SECONDS = 30.0
# Errors that do not depend on the format.
_SAME_IN_JSON = (
    ExpiredIteratorError,
    KeyUnavailableError,
    SourceThrottledError,
    SlowAnswerError,
)
# How GetShardIterator names the parts of a StartingPosition.
_ITERATOR_NAMES = {
    "Type": "ShardIteratorType",
    "SequenceNumber": "StartingSequenceNumber",
}
# Begins an iterator that Kinesis has not issued yet: the number of a record follows.
_AFTER = "after:"


class CborSupport:
    """Knows whether a stream is read in CBOR, which many emulators don't understand.

    The first read that succeeds decides. Later, a page that can't be decoded ends CBOR.
    """

    def __init__(self) -> None:
        self.is_usable: bool = compiled is not None
        self._is_confirmed = False

    def may_explain(self, error: KinesumerError) -> bool:
        """Return whether the same read may succeed in JSON."""
        if isinstance(error, _SAME_IN_JSON) or is_refusal(error):
            return False
        return not (self._is_confirmed and isinstance(error.__cause__, foreign()))

    def succeeded(self) -> None:
        """Record that a request in CBOR had a page as its answer."""
        self._is_confirmed = True

    def failed(self, label: str, error: KinesumerError) -> None:
        """Record that a read failed in CBOR and then succeeded in JSON."""
        if self.is_usable and self.may_explain(error):
            self.is_usable = False
            logger.info("%s is read as JSON, because CBOR fails: %s", label, error)


class PatientReservation:
    """A reservation that pauses the call's time-out while it waits for memory."""

    def __init__(self, reservation: Reservation) -> None:
        self._reservation = reservation
        self.limit: Countdown
        self.has_begun = False  # whether the response's head has arrived

    def covers(self, size: int | None) -> bool:
        """Return whether a response of ``size`` bytes fits in the reserved memory."""
        self.has_begun = True
        return self._reservation.covers(size)

    def shrink(self, size: int) -> None:
        """Release the memory that a response of ``size`` bytes doesn't need."""
        self._reservation.shrink(size)

    async def grow(self, size: int | None) -> None:
        """Wait until memory is reserved for a response of ``size`` bytes."""
        self.has_begun = True
        self.limit.pause()
        await self._reservation.grow(size)
        self.limit.resume()


async def call_in_time(
    operation: str,
    call: Callable[[], Awaitable[Answer]],
    slot: AbstractAsyncContextManager[None],
    explain: Callable[[AwsFailure], Awaitable[KinesumerError]],
    patient: PatientReservation | None = None,
) -> Answer:
    """Return a call's response, or raise the error that ``explain`` returns.

    Raise SlowAnswerError if the response took too long, but had begun.
    """
    try:
        # The time-out starts when a connection is free: the wait for a connection says
        # nothing about the service.
        async with slot, timeout(ANSWER_SECONDS) as limit:
            if patient is not None:
                patient.limit = limit
            with translated_errors(operation, SourceUnavailableError):
                return await call()
    except foreign() as failure:
        error = await explain(failure_of(failure))
        has_begun = patient is not None and patient.has_begun
        if has_begun and isinstance(failure, TimeoutError):
            error = SlowAnswerError(str(error))
        raise error from failure


class PollingSource(Polled):
    """The part of a polled StreamSource that applies the rule of ``core.lineage``.

    Its iterators begin with the id of the shard and a space, because only a listing of
    the stream's shards can confirm that a shard has ended.
    """

    @abstractmethod
    async def list_shards(self) -> Sequence[Shard]:
        """Return every shard that Kinesis lists, including closed shards."""

    @abstractmethod
    async def _place(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator of Kinesis. Raise as ``get_iterator()`` does."""

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator just after a position, or at a start.

        Raise ShardMissingError, TrimmedPositionError, InvalidPositionError, or
        StartInFutureError if Kinesis's clock hasn't reached the start's timestamp.
        """
        return f"{shard_id} {await self._find(shard_id, after)}"

    async def _find(self, shard_id: str, after: Position | Start) -> str:
        try:
            return await self._place(shard_id, after)
        except (InvalidPositionError, ShardMissingError, TrimmedPositionError) as error:
            shard = find(await self.list_shards(), shard_id)
            if shard is not None and is_past_end(shard, after):
                return await self._place(shard_id, Start.LATEST)
            if shard is None and isinstance(error, InvalidPositionError):
                raise SourceUnavailableError(
                    f"Kinesis does not list the shard of a position that it refuses: "
                    f"{error}"
                ) from error
            if shard is not None and isinstance(error, ShardMissingError):
                raise _listed(error) from error
            raise

    async def _read_confirmed(
        self, iterator: str, read: Callable[[str], Awaitable[Page]]
    ) -> Page:
        """Return a page, which has no iterator only if the shard has ended.

        ``read`` requests the page at an iterator of Kinesis.
        """
        shard_id, _, place = iterator.rpartition(" ")
        if place.startswith(_AFTER):
            position = Position(place.removeprefix(_AFTER))
            place = await self._find(shard_id, position)
        was_closed = False
        while True:
            page = await self._read_listed(shard_id, place, read)
            match after_page(page, was_closed=was_closed):
                case NextStep.READ_ON:
                    following = f"{shard_id} {page.next_iterator}"
                    return page._replace(next_iterator=following)
                case NextStep.READ_AFTER_LAST:
                    last = page.records[-1].sequence_number
                    following = f"{shard_id} {_AFTER}{last}"
                    return page._replace(next_iterator=following)
                case NextStep.END:
                    return page
            shard = find(await self.list_shards(), shard_id)
            was_closed = shard is not None and shard.closed
            if not was_closed:
                page = page._replace(next_iterator=iterator, is_unconfirmed=True)
                return page

    async def _read_listed(
        self,
        shard_id: str,
        place: str,
        read: Callable[[str], Awaitable[Page]],
    ) -> Page:
        try:
            return await read(place)
        except ShardMissingError as error:
            if find(await self.list_shards(), shard_id) is not None:
                raise _listed(error) from error
            raise


def _listed(error: ShardMissingError) -> SourceUnavailableError:
    return SourceUnavailableError(
        f"Kinesis lists the shard, but doesn't find it: {error}"
    )


def subscription_position(after: Position | Start) -> dict[str, object]:
    """Return the argument ``StartingPosition`` of SubscribeToShard."""
    if isinstance(after, Position):
        # If only some user records of an aggregate were processed, the whole aggregate
        # is read again.
        whole = after.sub_sequence_number is None
        kind = "AFTER_SEQUENCE_NUMBER" if whole else "AT_SEQUENCE_NUMBER"
        return {"Type": kind, "SequenceNumber": after.sequence_number}
    if after.timestamp is None:
        return {"Type": after.type}
    # Kinesis uses milliseconds. Round down, so that no record is skipped.
    timestamp = math.floor(after.timestamp * 1000) / 1000
    return {"Type": after.type, "Timestamp": timestamp}


def iterator_arguments(after: Position | Start) -> dict[str, object]:
    """Return the arguments of GetShardIterator that say where to begin."""
    position = subscription_position(after)
    return {_ITERATOR_NAMES.get(name, name): value for name, value in position.items()}


@contextmanager
def timestamp_errors(arguments: Mapping[str, object]) -> Iterator[None]:
    """Raise StartInFutureError if Kinesis rejects a timestamp in the arguments."""
    try:
        yield
    except (TrimmedPositionError, InvalidPositionError) as error:
        # Kinesis rejects a timestamp only if it is in the future.
        if "Timestamp" in arguments:
            raise StartInFutureError(str(error)) from error
        raise
