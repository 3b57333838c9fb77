"""Answer the page's requests for records and for dead letters."""

from __future__ import annotations

import asyncio
import random
from base64 import b64encode
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Annotated, Any

import msgspec

from kinesumer.aws.session import ClientFactory
from kinesumer.aws.sources import open_polled_source
from kinesumer.coordination.store_queries import find_stream
from kinesumer.core import lineage
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.handlers.dead_letters.letter import (
    DeadLetter,
    LetterWithoutData,
    ReadableDeadLetters,
)
from kinesumer.handlers.dead_letters.targets import open_readable
from kinesumer.model.records import Record
from kinesumer.model.streams import Start, stream_name
from kinesumer.ops.group.connect import Roles, operator_context
from kinesumer.ops.group.records import (
    MAX_RECORDS,
    FoundRecords,
    RecordQuery,
    find_records,
)
from kinesumer.ops.group.redrive import Contents, Filter, Redrive, read_letters
from kinesumer.ops.group.seek import parse_position, position_text
from kinesumer.ops.group.shard_reads import READ_INTERVAL_SECONDS, PacedReader
from kinesumer.ports import StateStore
from kinesumer.runtime.text import counted, escape_unprintable

# The page shows only the beginning of larger data.
SHOWN_BYTES = 16 * 1024
Utf8Decoder = getincrementaldecoder("utf-8")
# JSON is shown without indentation if it has more arrays and objects, or gets larger.
MAX_NESTED, INDENTED_BYTES = 500, 64 * 1024


class RecordsRequest(
    msgspec.Struct, forbid_unknown_fields=True, rename={"start": "from"}
):
    """The records that a browser requests; the request must have the token."""

    stream: str
    shard: str
    # LATEST, TRIM_HORIZON, a time, or a position; empty for the last records.
    start: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_RECORDS)] = 50
    contains: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    partition_key: Annotated[str, msgspec.Meta(max_length=256)] = ""
    with_data: bool = False  # also return all data of the records, for a download


class ShownRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record as the page shows it."""

    position: str
    partition_key: str | None
    explicit_hash_key: str | None
    arrived_at: float | None  # seconds since 1970
    bytes: int  # the size of the data
    shown_bytes: int  # the size of the part that is shown
    kind: str  # "json", "text" or "binary"
    text: str  # JSON is indented, and binary data is in base64
    data: str | None  # all of the data in base64, if it was requested


class RecordBrowser:
    """Reads records of the streams of one app."""

    def __init__(
        self, app: str, clients: ClientFactory, store: StateStore, roles: Roles
    ) -> None:
        self._context = operator_context(app, store)
        self._clients, self._roles = clients, roles
        # One reader, so that several pages together don't read a shard more often.
        self._reader = PacedReader(READ_INTERVAL_SECONDS)

    async def find(self, request: RecordsRequest) -> dict[str, Any]:
        """Return records of a shard. Raises KinesumerError."""
        start = None
        if request.start:
            start = parse_position(request.start, request.shard, name="from")
        # Only the app's own streams can be read, whatever else the credentials allow.
        row = await find_stream(self._context, request.stream)
        source = await open_polled_source(self._clients, self._roles.stream(row.arn))
        info = await source.describe()
        moment = start.timestamp if isinstance(start, Start) else None
        if moment is not None and moment > info.now:
            raise ConfigurationError(
                f"from {request.start} is in the future: give an earlier time"
            )
        shard = lineage.find(await source.list_shards(), request.shard)
        if shard is None:
            raise ConfigurationError(
                f"{row.arn} has no shard {escape_unprintable(request.shard)}: it may "
                "be older than the stream's retention; choose another"
            )
        query = RecordQuery(
            start, request.limit, request.contains.encode(), request.partition_key
        )
        found = await find_records(self._reader, source, info, shard, query)
        return answer(found, with_data=request.with_data)


def answer(found: FoundRecords, *, with_data: bool = False) -> dict[str, Any]:
    """Return the records of a query as the page shows them, and how they were found.

    ``next`` is the value of ``from`` that continues after these records.
    """
    shown = [show_record(record, with_data=with_data) for record in found.records]
    return found._asdict() | {"records": shown, "next": position_text(found.next)}


def show_record(record: Record, *, with_data: bool = False) -> ShownRecord:
    """Return a record as the page shows it, decoded as JSON or as text if possible."""
    kind, text = _decode_data(record.data)
    return ShownRecord(
        position=record.position.text,
        partition_key=record.partition_key,
        explicit_hash_key=record.explicit_hash_key,
        arrived_at=record.approximate_arrival_timestamp,
        bytes=len(record.data),
        shown_bytes=min(len(record.data), SHOWN_BYTES),
        kind=kind,
        text=text,
        data=b64encode(record.data).decode() if with_data else None,
    )


def _decode_data(data: bytes) -> tuple[str, str]:
    """Return the kind of the data, and the text to show."""
    if data.lstrip()[:1] in (b"{", b"[") and len(data) <= SHOWN_BYTES:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return "json", _indent(data)
    shown = data[:SHOWN_BYTES]
    try:
        # Larger data may be cut within a character, which the decoder leaves out.
        text = Utf8Decoder().decode(shown, final=shown == data)
    except UnicodeDecodeError:
        return "binary", b64encode(shown).decode()
    # The only control characters of text are tabs and the ends of lines.
    if any(character < " " and character not in "\t\r\n" for character in text):
        return "binary", b64encode(shown).decode()
    return "text", text


def _indent(data: bytes) -> str:
    """Return JSON indented, unless it becomes much larger. Raises MsgspecError."""
    # Indentation grows with the depth, so a producer could make it arbitrarily large.
    compact = msgspec.json.format(data, indent=-1)
    if compact.count(b"[") + compact.count(b"{") <= MAX_NESTED:
        indented = msgspec.json.format(compact, indent=2)
        if len(indented) <= INDENTED_BYTES:
            return indented.decode()
    return compact.decode()


# The page lists and puts back at most so many letters at a time. A person reads no
# more, and the command handles any number.
MAX_LETTERS = MAX_RECORDS
LetterId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
LetterIds = Annotated[
    list[LetterId], msgspec.Meta(min_length=1, max_length=MAX_LETTERS)
]


class LettersRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request for all letters, or for one of them with its data and traceback."""

    letter: LetterId | None = None


class LetterBrowser:
    """Reads one target, for one request after another.

    A queue hides the messages that one reader has from all others.
    """

    def __init__(
        self, app: str, target: str, clients: ClientFactory, roles: Roles
    ) -> None:
        self.target: str = target
        self._app, self._clients, self._roles = app, clients, roles
        self._reading = asyncio.Lock()

    async def find(self, request: LettersRequest) -> dict[str, Any]:
        """Return the letters of the app, or one of them. Raises KinesumerError.

        A list has the letters that failed last, the latest first.
        """
        async with self._open() as (_, contents):
            if request.letter is not None:
                [held] = contents.select([request.letter])
                shown = [held.report() | _details(held.letter)]
            else:
                last = contents.letters[-MAX_LETTERS:]
                shown = [held.report() for held in reversed(last)]
            return {
                "target": self.target,
                "total": len(contents.letters),
                "letters": shown,
                "unreadable": contents.unreadable,
            }

    async def preview(self, ids: Sequence[str]) -> list[str]:
        """Return what a redrive will do. Raises KinesumerError."""
        async with self._open() as (stored, contents):
            streams = Counter(held.letter.stream_arn for held in contents.select(ids))
            after = "removed from" if stored.removes else "kept by Kinesis in"
        return [
            *(
                f"puts {counted(count, 'record')} back into "
                f"{escape_unprintable(stream_name(arn))}, for every app that reads it"
                for arn, count in streams.items()
            ),
            f"then the letters are {after} {escape_unprintable(self.target)}",
        ]

    async def redrive(self, ids: Sequence[str]) -> str:
        """Put records back, and say how many. Raises KinesumerError if one stays."""
        async with self._open() as (stored, contents):
            chosen = contents.select(ids)
            chance = random.Random()
            work = Redrive(self._clients, stored, chance=chance, roles=self._roles)
            outcome = await work.run(chosen)
        done = f"{counted(len(outcome.put), 'record')} put back"
        if outcome.failed:
            letter, reason = outcome.failed[0]
            left = counted(len(outcome.failed), "letter")
            raise KinesumerError(
                f"{done}, {left} left: {letter.id}: {reason}; try again after that"
            )
        return done

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[tuple[ReadableDeadLetters, Contents]]:
        async with self._reading:
            target = await open_readable(self.target, self._clients)
            async with aclosing(target) as stored:
                yield stored, await read_letters(stored.read(), Filter(app=self._app))


def _details(letter: DeadLetter) -> dict[str, str | None]:
    """Return a letter's traceback and data, if the target accepted the data."""
    kind, text = None, None
    if not isinstance(letter, LetterWithoutData):
        kind, text = _decode_data(letter.data)
    return {"traceback": letter.traceback, "kind": kind, "text": text}
