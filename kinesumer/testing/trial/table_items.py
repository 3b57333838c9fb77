"""Change numbered items of a table, and find the changes in the table's stream.

DynamoDB's answer to a write doesn't tell the shard and the position of the change. So
the stream is read by itself after the run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from kinesumer.aws.table_streams import TableStreamSource
from kinesumer.errors import TransientError
from kinesumer.model.records import Record
from kinesumer.model.streams import ShardKey, Start, stream_name
from kinesumer.runtime.shard_pages import ShardPages
from kinesumer.runtime.tasks import CALL_RETRIES
from kinesumer.testing.trial.journal import (
    Entry,
    Produced,
    Producer,
    RecordCounts,
    number_of_change,
)
from kinesumer.wire.table_streams import PAGE_RECORDS

BATCH_ITEMS = 25  # which BatchWriteItem permits
ITEMS = 100
RETRIES = CALL_RETRIES._replace(errors=(TransientError,))


@dataclass
class TableProducer(Producer):
    """Puts numbered items into the table of a stream. Each item is put repeatedly."""

    most = BATCH_ITEMS

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """Return an entry for each number."""
        names = (f"item-{self.random.randrange(ITEMS)}" for _ in numbers)
        return [Entry([n], name, b"") for n, name in zip(numbers, names, strict=True)]

    async def request(self, entries: list[Entry]) -> list[Entry]:
        """Put the first of each item's entries, and return what isn't put yet.

        A batch must not have an item twice.
        """
        first: dict[str, Entry] = {}
        for entry in entries:
            first.setdefault(entry.key, entry)
        table = stream_name(self.arn).partition("/")[2]
        puts = [{"PutRequest": {"Item": _item(entry)}} for entry in first.values()]
        answer = await self.client.batch_write_item(RequestItems={table: puts})
        for refused in answer.get("UnprocessedItems", {}).get(table, ()):
            del first[refused["PutRequest"]["Item"]["id"]["S"]]
        for entry in first.values():
            self.counts.add_written(self.arn, entry.numbers[0])
        return [entry for entry in entries if first.get(entry.key) is not entry]


def _item(entry: Entry) -> dict[str, dict[str, str]]:
    return {"id": {"S": entry.key}, "number": {"N": str(entry.numbers[0])}}


async def find_changes(source: TableStreamSource, counts: RecordCounts) -> list[str]:
    """Count the changes of a table as produced, where its stream has them.

    Return a sentence if changes that DynamoDB accepted aren't in the stream.
    """
    arn = await source.arn()
    times = counts.written.pop(arn)
    async for shard, record in _records(source, arn):
        number = number_of_change(record)
        if number in times:
            at = times.pop(number)
            key = record.partition_key or ""
            found = Produced(number, key, shard, record.position, at)
            counts.produced.append(found)
    if not times:
        return []
    return [f"{len(times)} changes aren't in the stream, one is {min(times)}"]


async def _records(
    source: TableStreamSource, arn: str
) -> AsyncIterator[tuple[ShardKey, Record]]:
    for shard in await RETRIES.call(source.list_shards):
        key = ShardKey(arn, shard.shard_id)
        pages = ShardPages(source, key, Start.TRIM_HORIZON, call=RETRIES.call)
        while True:
            page = await pages.next(PAGE_RECORDS)
            for record in page.records:
                yield key, record
            if page.is_at_tip:
                break
