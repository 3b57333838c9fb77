"""Read one shard into the buffer, from its position to its end.

The records that may have killed the shard's former owners are queued in isolation: then
user code gets one record at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.page_fetch import Ended, PageFetch, Retry
from kinesumer.consuming.prefetch import FetchedBatch
from kinesumer.consuming.read_place import ReadPlace
from kinesumer.consuming.suspects import Suspects
from kinesumer.core.lineage import records_before
from kinesumer.errors import SourceUnavailableError
from kinesumer.model.positions import SEEN_SLACK_SECONDS
from kinesumer.model.records import Page, Record, memory_size
from kinesumer.model.streams import Shard
from kinesumer.wire.aggregation import has_aggregates

# With manual commits, user code that asks for more records has this time to acknowledge
# a record before it gets the next one. It may acknowledge several records together.
ACK_SECONDS = 0.25

# An event of a subscription may also have waited for the reader, at most as long as a
# subscription lasts.
PUSHED_SLACK_SECONDS = SEEN_SLACK_SECONDS + 300.0


class ShardReader:
    """Reads the records of one shard, page by page, into the buffer."""

    def __init__(self, place: ReadPlace) -> None:
        self._context, self._stream = place.context, place.stream
        self._place, self._owned = place, place.owned

    async def run(self) -> None:
        """Read until the shard's end, where Kinesis names children, or ``until``."""
        clock = self._context.clock
        next_at = clock.now()
        try:
            while self._owned.children is None and not self._owned.reached:
                await asyncio.sleep(max(0.0, next_at - clock.now()))
                next_at = await self._read_once()
        finally:
            self._stream.source.release(self._owned.key.shard_id)

    async def _read_once(self) -> float:
        """Read a page into the buffer; return when to read again."""
        fetch = PageFetch(self._place)
        try:
            match await fetch.run():
                case Page() as page:
                    return await self._take(page, fetch)
                case Ended(page):
                    return await self._take(page, fetch, page.children)
                case Retry(at):
                    return at
        except SourceUnavailableError as error:  # no memory to build batches
            self._context.failure_log.record_failure(self._stream.label, error)
            self._place.forget_iterator()
            return self._place.after_failure()
        finally:
            fetch.close()

    async def _take(
        self, page: Page, fetch: PageFetch, children: tuple[Shard, ...] | None = None
    ) -> float:
        """Queue a page's records; return when to read again.

        If the shard ends with the page, ``children`` are its children.
        """
        place, owned, records = self._place, self._owned, page.records
        began, until = fetch.began_at, self._stream.until
        next_at = place.after_page(began, page)
        if is_cut := (count := records_before(page, until)) < len(records):
            records = records[:count]
        await self._queue(records, page.millis_behind, fetch)
        reached = self._stream.service_time.earliest(began)
        if not page.millis_behind:
            slack = PUSHED_SLACK_SECONDS if place.is_pushed else SEEN_SLACK_SECONDS
            owned.caught_up(reached - slack, self._stream.retention_seconds)
        ends_here = is_cut or (not page.millis_behind and reached >= until)
        if owned.suspects is not None and (ends_here or not page.millis_behind):
            owned.suspects.end(owned.queued_records)
        if children is not None and not is_cut:
            owned.children = children
        elif ends_here:
            owned.reached = until
        return self._context.clock.now() if place.is_pushed else next_at

    async def _queue(
        self, records: Sequence[Record], millis_behind: int, fetch: PageFetch
    ) -> None:
        builder = self._place.builder
        if not has_aggregates(records):
            batches = builder.build(records, millis_behind)
            fetch.keep(sum(batch.size for batch in batches))
            await self._put(batches, fetch)
            return
        fetch.keep(memory_size(records))
        steps = builder.open(records, millis_behind)
        while (opened := await fetch.open(steps)) is not None:
            await self._put(opened, fetch)
            await asyncio.sleep(0)  # opening takes long: let other tasks run

    async def _put(self, batches: list[FetchedBatch], fetch: PageFetch) -> None:
        """Queue batches as ``max_uncommitted_records`` allows."""
        for fetched in batches:
            batch: FetchedBatch | None = fetched
            if (suspects := self._owned.suspects) is not None:
                batch = await put_suspects(self._owned, suspects, fetched, fetch.put)
            if batch is None:
                continue
            # While user code is slow, the reader stops here and fetches no more pages.
            await self._owned.wait_for_capacity(len(batch))
            self._owned.queued_records += len(batch)
            fetch.put(batch)


async def put_suspects(
    owned: OwnedShard,
    suspects: Suspects,
    batch: FetchedBatch,
    put: Callable[[FetchedBatch], object],
) -> FetchedBatch | None:
    """Queue a batch's suspects if they are isolated; return the rest, if any.

    Otherwise, note that user code is about to get suspects, and return the batch.
    """
    count = suspects.count_suspects(batch.records)
    if not suspects.is_isolated:
        if count:
            await suspects.note_first(batch.records[0].position)
        if count < len(batch):
            suspects.end(owned.queued_records + count)
            await suspects.turn.end(suspects)
        if not count or not suspects.turn.isolated_shards:
            return batch
        await _put_in_turn(owned, suspects, batch, put)
        return None
    for index, record in enumerate(batch.records[:count]):
        one = batch.with_records([record])
        one.end = batch.end if index + 1 == len(batch) else None
        await _put_in_turn(owned, suspects, one, put)
    if count == len(batch):
        return batch if not count else None
    suspects.end(owned.queued_records)
    await suspects.turn.end(suspects)
    return batch.with_records(batch.records[count:])


async def _put_in_turn(
    owned: OwnedShard,
    suspects: Suspects,
    batch: FetchedBatch,
    put: Callable[[FetchedBatch], object],
) -> None:
    """Queue records, and wait until their positions are stored."""
    await owned.wait_for_capacity(len(batch))
    async with suspects.turn:
        await suspects.turn.begin(suspects)
        position = batch.records[0].position
        # The poison isn't given to user code.
        if suspects.is_isolated and position != suspects.poison:
            suspects.due = position
        suspects.is_in_turn = True
        owned.queued_records += len(batch)
        put(batch)
        while not await owned.all_stored(ACK_SECONDS):
            is_in_use = suspects.is_in_use()
            is_passed = owned.handed_out >= owned.queued_records and not is_in_use
            if is_passed and suspects.acks_late:
                suspects.turn.unacked = suspects if suspects.is_isolated else None
                break
        suspects.is_in_turn = False
