"""Store dead letters in a Kinesis stream, as records that can't be removed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from kinesumer.aws.kinesis import KinesisSource, open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.consuming.prefetch import PAGE_RECORDS
from kinesumer.errors import (
    ConfigurationError,
    DeadLettersUnavailableError,
    DeadLetterTooLargeError,
    RecordRefusedError,
    SourceUnavailableError,
)
from kinesumer.handlers.dead_letters.letter import (
    DeadLetter,
    ReadableDeadLetters,
    StoredEntry,
    encode_letter,
    put_what_fits,
    read_entry,
)
from kinesumer.model.records import Record
from kinesumer.model.streams import ShardKey, Start, Stream, StreamInfo
from kinesumer.runtime.shard_pages import ShardPages
from kinesumer.runtime.tasks import CALL_RETRIES
from kinesumer.runtime.text import SECRETS
from kinesumer.wire.put_records import Entry, EntryResult


def _unavailable(error: SourceUnavailableError) -> DeadLettersUnavailableError:
    unavailable = DeadLettersUnavailableError(str(error))
    unavailable.lacks_credentials = error.lacks_credentials
    return unavailable


async def open_stream(clients: ClientFactory, name: str) -> KinesisLetters:
    """Open a stream, given by name or ARN, as a target. Raises StreamMissingError."""
    source = await open_source(clients, Stream(name))
    try:
        return KinesisLetters(source, await source.describe())
    except SourceUnavailableError as error:
        raise _unavailable(error) from error


class KinesisLetters(ReadableDeadLetters):
    """Stores letters in a stream for its retention period."""

    removes = False

    def __init__(self, source: KinesisSource, info: StreamInfo) -> None:
        self._source, self._info = source, info

    async def put(self, letter: DeadLetter) -> None:
        """Put a letter, without the record's data if that is too large."""
        arn = self._info.arn
        if letter.stream_arn == arn:
            raise ConfigurationError(
                f"stream {arn} cannot hold its own dead letters, because its consumers "
                "would get them again; name another stream"
            )
        await put_what_fits(letter, self._put_letter)

    async def _put_letter(self, letter: DeadLetter) -> None:
        # The partition key is the letter's id, which spreads letters over all shards.
        entry = Entry(encode_letter(letter), letter.id)
        try:
            result = await self._put(entry)
        except SourceUnavailableError as error:
            raise _unavailable(error) from error
        if result.error_code is not None:
            raise DeadLettersUnavailableError(
                f"stream {self._info.arn} rejected a dead letter: {result.error_code}: "
                f"{SECRETS.redact(result.error_message or '')}"
            )

    async def _put(self, entry: Entry) -> EntryResult:
        if entry.size > self._info.max_record_bytes:
            await self._require_room(entry)
        try:
            [result] = await self._source.put_records([entry])
        except RecordRefusedError:
            await self._require_room(entry)
            raise
        return result

    async def _require_room(self, entry: Entry) -> None:
        """Raise DeadLetterTooLargeError if the stream doesn't take a letter by now.

        An administrator may change the largest record of a stream at any time.
        """
        self._info = info = await self._source.describe()
        if entry.size > info.max_record_bytes:
            raise DeadLetterTooLargeError(
                f"a dead letter of {entry.size:,} bytes is too large for stream "
                f"{info.arn}: its records have at most {info.max_record_bytes:,}; "
                "raise the stream's largest record size, or keep letters in S3 or in a "
                "file"
            )

    async def read(self) -> AsyncIterator[StoredEntry]:
        """Yield the records of every shard, from the oldest to the newest."""
        for shard in await self._source.list_shards():
            async for record in self._records(shard.shard_id):
                place = f"{shard.shard_id}/{record.sequence_number}"
                yield read_entry(place, record.data, f"record {place}")

    async def remove(self, stored: Sequence[StoredEntry]) -> None:
        """Do nothing: Kinesis removes records after the retention period."""

    async def _records(self, shard_id: str) -> AsyncIterator[Record]:
        key = ShardKey(self._info.arn, shard_id)
        pages = ShardPages(
            self._source, key, Start.TRIM_HORIZON, call=CALL_RETRIES.call
        )
        while True:
            page = await pages.next(PAGE_RECORDS)
            for record in page.records:
                yield record
            if page.is_at_tip:
                return
