"""Read one shard into the buffer, from its checkpoint to its end."""

from __future__ import annotations

import asyncio

from kinesumer.consuming.isolation import put_suspects
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.page_fetch import PageFetch, Retry
from kinesumer.consuming.prefetch import FetchedBatch, PrefetchBuffer
from kinesumer.consuming.read_place import ReadPlace
from kinesumer.consuming.streams import OpenStream
from kinesumer.core.lineage import records_before
from kinesumer.errors import SourceUnavailableError
from kinesumer.model.positions import SEEN_SLACK_SECONDS
from kinesumer.model.records import Page, Record, memory_size
from kinesumer.runtime.context import ClientContext
from kinesumer.wire.aggregation import has_aggregates

# An event of a subscription may also have waited for the reader, at most as long as a
# subscription lasts.
PUSHED_SLACK_SECONDS = SEEN_SLACK_SECONDS + 300.0


class ShardReader:
    """Reads the records of one shard, page by page, into the buffer."""

    def __init__(
        self,
        context: ClientContext,
        stream: OpenStream,
        owned: OwnedShard,
        buffer: PrefetchBuffer,
    ) -> None:
        self._context, self._stream, self._owned = context, stream, owned
        self._place = ReadPlace(context, stream, owned, buffer)

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
            fetched = await fetch.run()
            if isinstance(fetched, Retry):
                return fetched.at
            return await self._take(fetched, fetch)
        except SourceUnavailableError as error:  # no memory to build batches
            self._context.failure_log.record_failure(self._stream.label, error)
            self._place.forget_iterator()
            return self._place.after_failure()
        finally:
            fetch.close()

    async def _take(self, page: Page, fetch: PageFetch) -> float:
        """Queue a page's records; return when to read again."""
        place, owned, records = self._place, self._owned, page.records
        owned.millis_behind = page.millis_behind
        if page.is_unconfirmed:
            place.warnings.not_ended()
            place.forget_iterator()
            return place.after_failure()
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
        if page.next_iterator is None and not is_cut:
            owned.children = page.children
        elif ends_here:
            owned.reached = until
        return self._context.clock.now() if place.is_pushed else next_at

    async def _queue(
        self, records: list[Record], millis_behind: int, fetch: PageFetch
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
            self._owned.queued(len(batch))
            fetch.put(batch)
