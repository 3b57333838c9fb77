"""Poll shards, and confirm the end of a shard before it is reported."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from kinesumer.core.shard_end import NextStep, after_page, find, is_past_end
from kinesumer.errors import (
    InvalidPositionError,
    ShardMissingError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.streams import Shard, Start
from kinesumer.ports import Polled

T = TypeVar("T")

# Begins an iterator that Kinesis has not issued yet: the number of a record follows.
_AFTER = "after:"


class PollingSource(Polled):
    """The part of a polled StreamSource that applies the rule of ``core.shard_end``.

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
        self, iterator: str, read: Callable[[str], Awaitable[tuple[Page, T]]]
    ) -> tuple[Page, T]:
        """Return a page, which has no iterator only if the shard has ended.

        ``read`` requests the page at an iterator of Kinesis. If a page lacks an
        iterator and children, it must contain its records as objects.
        """
        shard_id, _, place = iterator.rpartition(" ")
        if place.startswith(_AFTER):
            position = Position(place.removeprefix(_AFTER))
            place = await self._find(shard_id, position)
        was_closed = False
        while True:
            page, result = await self._read_listed(shard_id, place, read)
            match after_page(page, was_closed=was_closed):
                case NextStep.READ_ON:
                    following = f"{shard_id} {page.next_iterator}"
                    return page._replace(next_iterator=following), result
                case NextStep.READ_AFTER_LAST:
                    last = page.records[-1].sequence_number
                    following = f"{shard_id} {_AFTER}{last}"
                    return page._replace(next_iterator=following), result
                case NextStep.END:
                    return page, result
            shard = find(await self.list_shards(), shard_id)
            was_closed = shard is not None and shard.closed
            if not was_closed:
                page = page._replace(next_iterator=iterator, is_unconfirmed=True)
                return page, result

    async def _read_listed(
        self,
        shard_id: str,
        place: str,
        read: Callable[[str], Awaitable[tuple[Page, T]]],
    ) -> tuple[Page, T]:
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
