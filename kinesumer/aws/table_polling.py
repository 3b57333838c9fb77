"""Poll a table's stream: list its shards, place iterators, and find children."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import msgspec

from kinesumer.core.backoff import CALL_BACKOFF
from kinesumer.core.child_search import PAGE_SECONDS, ChildSearch, OfShard
from kinesumer.core.lineage import NextStep, after_page, find, is_past_end
from kinesumer.core.table_listing import TableListing
from kinesumer.errors import (
    ChildrenUnknownError,
    InvalidPositionError,
    KinesumerError,
    ShardMissingError,
    SourceThrottledError,
    SourceUnavailableError,
    StreamRecreatedError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import UNKNOWN_BEHIND_MILLIS, Page, Record
from kinesumer.model.streams import Shard, Start, StreamInfo
from kinesumer.ports import Polled, Reservation
from kinesumer.wire.table_streams import DISABLED, PAGE_RECORDS, StreamPage

# DynamoDB keeps the changes of a day. This can't be changed.
RETENTION_HOURS = 24
# After so many empty pages in a row, no record follows at present. One such page is no
# proof: AWS may answer it where records follow in another part of the shard. Chosen.
EMPTY_PAGES_AT_TIP = 4
# How often a page of a listing is requested.
PAGE_TRIES = 10
Skips = Callable[[Record], bool]


class NoTimestampsError(KinesumerError):
    """The service knows no iterators at a time."""


class Described(NamedTuple):
    """A page of a stream's description, and the service's time of the response."""

    page: StreamPage
    now: float


class Place(NamedTuple):
    """An iterator of DynamoDB, and what the meaning of its page depends on."""

    shard_id: str
    iterator: str
    empty_pages: int = 0  # in a row, before this place
    since: float = 0.0  # skip records that were created before this time
    # Without an iterator: one after this sequence number must be requested first.
    last: str = ""

    def encode(self) -> str:
        """Return the place as a text, which ``decode()`` reads."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the place that a text has."""
        return msgspec.json.decode(text, type=cls)

    def after(self, page: Page, iterator: str) -> Self:
        """Return the place of the next page."""
        empty = self.empty_pages + 1
        if page.records:
            empty = 0 if page.millis_behind else EMPTY_PAGES_AT_TIP
        return self._replace(iterator=iterator, empty_pages=empty)

    def after_last(self, records: Sequence[Record]) -> Self:
        """Return the place after the last one of records, without an iterator."""
        return self._replace(
            iterator="", empty_pages=0, last=records[-1].sequence_number
        )

    def seen(self, page: Page, skips: Skips | None) -> Page:
        """Return the page as its reader should see it. ``skips`` says what it lacks."""
        records, behind = page.records, page.millis_behind
        if self.since:
            records = [
                record
                for record in records
                if (record.approximate_arrival_timestamp or self.since) >= self.since
            ]
        if skips is not None:
            records = [record for record in records if not skips(record)]
        if not page.records and self.empty_pages + 1 < EMPTY_PAGES_AT_TIP:
            behind = UNKNOWN_BEHIND_MILLIS
        return page._replace(records=records, millis_behind=behind)


class TablePollingSource(Polled):
    """The part of a table stream's source that makes no requests itself.

    A shard has ended if a response has no iterator, and a child of the shard is listed
    or the stream was disabled. Such a response alone proves nothing.
    """

    def __init__(self, skips: Skips | None = None) -> None:
        """Create the source. ``skips`` tells which records it leaves out."""
        self._skips = skips
        self._listing = TableListing()
        self._listed = asyncio.Lock()
        self._search = ChildSearch()
        self._has_timestamps = True

    @property
    @abstractmethod
    def label(self) -> str:
        """The stream's name, for messages."""

    @abstractmethod
    async def _describe(self, **arguments: object) -> Described:
        """Call DescribeStream with these arguments beside the stream's ARN."""

    @abstractmethod
    async def _place(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator of DynamoDB. Raise as ``get_iterator()`` does.

        Raise NoTimestampsError for a time if the service doesn't know such iterators.
        """

    @abstractmethod
    async def _read(
        self, iterator: str, limit: int, reservation: Reservation | None
    ) -> Page:
        """Return the page at an iterator of DynamoDB."""

    @abstractmethod
    async def _latest_arn(self) -> str | None:
        """Return the ARN of the table's present stream.

        None if it has none, or if the user has named one of its streams.
        """

    async def describe(self) -> StreamInfo:
        """Return the stream's current description. Raise StreamMissingError.

        Raise StreamRecreatedError if the table has another stream by now, and this one
        was named by its table.
        """
        page, now = await self._describe(Limit=1)
        if page.status in DISABLED:
            latest = await self._latest_arn()
            if latest not in (None, page.arn):
                raise StreamRecreatedError(
                    f"{self.label}: its stream {page.arn} was disabled, and the table "
                    f"has the stream {latest} since: restart the client to read this "
                    "one; what is unread in the old one can be read for a day, by its "
                    "ARN"
                )
        return StreamInfo(
            arn=page.arn,
            status=page.kinesis_status,
            created_at=page.created_at,
            retention_hours=RETENTION_HOURS,
            now=now,
        )

    async def list_shards(self) -> list[Shard]:
        """Return every shard that DynamoDB lists, including closed shards."""
        async with self._listed:
            await self._list()
            return self._listing.shards

    async def _list(self) -> None:
        page, now = await self._describe()
        after = self._listing.begin(page.shards, page.last, page.status, now)
        while after is not None:
            page, now = await self._next_page(after)
            after = self._listing.add(page.shards, page.last, now)

    async def _next_page(self, after: str) -> Described:
        """Return a further page. A long listing must not begin again if it is refused.

        AWS permits ten calls a second in an account: leave half of them to others.
        """
        for failures in range(1, PAGE_TRIES):
            await asyncio.sleep(PAGE_SECONDS)
            try:
                return await self._describe(ExclusiveStartShardId=after)
            except SourceThrottledError:
                await asyncio.sleep(CALL_BACKOFF.limit_seconds(failures))
        return await self._describe(ExclusiveStartShardId=after)

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator just after a position, or at a start.

        Raise ShardMissingError, TrimmedPositionError, InvalidPositionError, or
        StartInFutureError if DynamoDB's clock hasn't reached the start's timestamp.
        """
        at_time = isinstance(after, Start) and after.timestamp is not None
        if at_time and self._has_timestamps:
            try:
                return Place(shard_id, await self._place(shard_id, after)).encode()
            except NoTimestampsError:
                self._has_timestamps = False
        if at_time:
            # Read all records that the shard has, and skip the older ones.
            assert isinstance(after, Start)
            iterator = await self._place(shard_id, Start.TRIM_HORIZON)
            return Place(shard_id, iterator, since=after.timestamp or 0.0).encode()
        return Place(shard_id, await self._find(shard_id, after)).encode()

    async def _find(self, shard_id: str, after: Position | Start) -> str:
        try:
            return await self._place(shard_id, after)
        except (InvalidPositionError, ShardMissingError, TrimmedPositionError) as error:
            shard = await self._fresh(shard_id)
            if shard is not None and is_past_end(shard, after):
                return await self._place(shard_id, Start.LATEST)
            if shard is None and isinstance(error, InvalidPositionError):
                raise SourceUnavailableError(
                    "DynamoDB does not list the shard of a position that it refuses: "
                    f"{error}"
                ) from error
            if shard is not None and isinstance(error, ShardMissingError):
                raise SourceUnavailableError(
                    f"DynamoDB lists the shard, but doesn't find it: {error}"
                ) from error
            raise

    async def _fresh(self, shard_id: str) -> Shard | None:
        """Return the present entry of a shard. Listings may have an older one."""
        if find(await self.list_shards(), shard_id) is None:
            return None
        before = self._listing.before(shard_id)
        after: dict[str, object] = {}
        if before is not None:
            after = {"ExclusiveStartShardId": before}
        page, _ = await self._describe(**after)
        return find(page.shards, shard_id)

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return the next page. Raise ExpiredIteratorError or SourceThrottledError."""
        place = Place.decode(iterator)
        if place.last:
            found = await self._find(place.shard_id, Position(place.last))
            place = place._replace(iterator=found, last="")
        try:
            most = min(limit, PAGE_RECORDS)
            page = await self._read(place.iterator, most, reservation)
            if len(page.records) >= most:  # more records may follow
                behind = max(page.millis_behind, UNKNOWN_BEHIND_MILLIS)
                page = page._replace(millis_behind=behind)
        except ShardMissingError:
            if await self._fresh(place.shard_id) is None:
                raise
            raise SourceUnavailableError(
                f"{self.label}: DynamoDB lists shard {place.shard_id}, but doesn't "
                "find it"
            ) from None
        seen = place.seen(page, self._skips)
        if page.next_iterator is not None:
            following = place.after(page, page.next_iterator)
            return seen._replace(next_iterator=following.encode())
        children, is_disabled = await self._children(place.shard_id)
        if children is None:
            return self._unknown_children(place, seen, page)
        match after_page(page._replace(children=children), was_closed=is_disabled):
            case NextStep.END:
                return seen._replace(children=children)
            case NextStep.READ_AFTER_LAST if not is_disabled:
                following = place.after_last(page.records)
                return seen._replace(next_iterator=following.encode())
            case NextStep.READ_AFTER_LAST:
                return seen
        return seen._replace(next_iterator=iterator, is_unconfirmed=True)

    async def _children(self, shard_id: str) -> tuple[tuple[Shard, ...] | None, bool]:
        """Return a shard's children, and whether the stream was disabled.

        The children are None if they couldn't be asked for yet.
        """
        search, now = self._search, asyncio.get_running_loop().time
        known = self._listing.children(shard_id) or search.children(shard_id)
        if known:
            return known, False
        call = search.next_call(shard_id, now())
        if call is None:
            return None, False
        try:
            if isinstance(call, OfShard):
                found, is_disabled = await self._ask_children(shard_id)
                search.answered(shard_id, now())
                return found, is_disabled
            page, _ = await self._describe(ExclusiveStartShardId=call.shard_id)
        except BaseException as error:
            search.failed(now())
            if isinstance(error, SourceThrottledError):
                return None, False
            raise
        search.listed(page.shards, page.last, now())
        return search.children(shard_id) or None, False

    def _unknown_children(self, place: Place, seen: Page, page: Page) -> Page:
        """Return a page without its shard's end. Raise an error if it is empty."""
        if page.records:
            return seen._replace(next_iterator=place.after_last(page.records).encode())
        raise ChildrenUnknownError(
            f"{self.label}: the children of shard {place.shard_id} couldn't be asked "
            "for yet, since DynamoDB permits few calls of DescribeStream"
        )

    async def _ask_children(self, shard_id: str) -> tuple[tuple[Shard, ...], bool]:
        where: dict[str, object] = {
            "ShardFilter": {"Type": "CHILD_SHARDS", "ShardId": shard_id}
        }
        while True:
            page, _ = await self._describe(**where)
            # Servers that don't know the filter list all shards.
            found = tuple(each for each in page.shards if shard_id in each.parents)
            if found or page.last is None:
                return found, page.status in DISABLED
            where["ExclusiveStartShardId"] = page.last
