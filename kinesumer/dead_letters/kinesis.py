"""Dead letters in a Kinesis stream: one record each. None can be taken out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.aws.kinesis import open_source
from kinesumer.dead_letters.base import StoredEntry
from kinesumer.dead_letters.letter import decode_letter, encode_letter
from kinesumer.errors import (
    ConfigurationError,
    CorruptDeadLetterError,
    DeadLettersUnavailableError,
    DeadLetterTooLargeError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.model.streams import Start, Stream
from kinesumer.wire.put_records import Entry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kinesumer.aws.kinesis import KinesisSource
    from kinesumer.aws.session import ClientFactory
    from kinesumer.dead_letters.letter import DeadLetter
    from kinesumer.model.records import Page, Record
    from kinesumer.model.streams import StreamInfo

PAGE_RECORDS = 1_000
PACE_SECONDS = 0.25
"""Kinesis allows five reads a second of a shard."""
TRIES = 8


async def open_stream(clients: ClientFactory, name: str) -> KinesisLetters:
    """Return a stream, given by name or ARN. Raises StreamMissingError."""
    source = await open_source(clients, Stream(name))
    try:
        return KinesisLetters(source, await source.describe())
    except SourceUnavailableError as error:
        raise DeadLettersUnavailableError(str(error)) from error


class KinesisLetters:
    """Keeps letters in a stream, for as long as its retention says."""

    removes = False

    def __init__(self, source: KinesisSource, info: StreamInfo) -> None:
        self._source, self._info = source, info

    async def put(self, letter: DeadLetter) -> None:
        """Put a letter. Raises DeadLetterTooLargeError if the stream refuses it."""
        arn, longest = self._info.arn, self._info.max_record_bytes
        if letter.stream_arn == arn:
            raise ConfigurationError(
                f"stream {arn} cannot hold its own dead letters, since its consumers "
                "would get them again; name another stream"
            )
        entry = Entry(encode_letter(letter), letter.id)
        if entry.size > longest:
            raise DeadLetterTooLargeError(
                f"a dead letter of {entry.size:,} bytes is too large for stream {arn}: "
                f"its records have at most {longest:,}; raise the stream's largest "
                "record size, or keep letters in S3 or in a file"
            )
        try:
            [result] = await self._source.put_records([entry])
        except SourceUnavailableError as error:
            raise DeadLettersUnavailableError(str(error)) from error
        if result.error_code is not None:
            raise DeadLettersUnavailableError(
                f"stream {arn} didn't take a dead letter: {result.error_code}: "
                f"{result.error_message}"
            )

    async def read(self) -> AsyncIterator[StoredEntry]:
        """Go through every shard from its oldest record to its newest."""
        for shard in await self._source.list_shards():
            async for record in self._records(shard.shard_id):
                yield _stored(shard.shard_id, record)

    async def remove(self, stored: Sequence[StoredEntry]) -> None:
        """Do nothing: records of a stream go when they are old enough."""

    async def aclose(self) -> None:
        """Nothing is held open: the client belongs to who gave it."""

    async def _records(self, shard_id: str) -> AsyncIterator[Record]:
        iterator: str | None
        iterator = await self._source.get_iterator(shard_id, Start.TRIM_HORIZON)
        while iterator is not None:
            page = await self._page(iterator)
            for record in page.records:
                yield record
            iterator = page.next_iterator if page.millis_behind else None

    async def _page(self, iterator: str) -> Page:
        for attempt in range(1, TRIES):
            try:
                return await self._source.get_records(iterator, PAGE_RECORDS)
            except SourceThrottledError:
                await asyncio.sleep(PACE_SECONDS * attempt)
        return await self._source.get_records(iterator, PAGE_RECORDS)


def _stored(shard_id: str, record: Record) -> StoredEntry:
    place = f"{shard_id}/{record.sequence_number}"
    try:
        return StoredEntry(place, decode_letter(record.data))
    except CorruptDeadLetterError as error:
        return StoredEntry(place, None, f"record {place}: {error}")
