"""Put lines of text or JSON into a stream as records."""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.producer.aggregation import Aggregator
from kinesumer.producer.batching import PendingRecord, PutCounts, RecordProducer
from kinesumer.wire.put_records import Entry, PutResult, refusal

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
    from typing import Protocol

    from kinesumer.model.streams import Shard

    class Target(Protocol):
        """A stream to put records into."""

        async def list_shards(self) -> Sequence[Shard]:
            """Return the shards."""

        async def put_records(self, records: Sequence[Entry]) -> Sequence[PutResult]:
            """Put records; return a result for each."""


LINGER_SECONDS = 0.1
"""Records that don't fill a request are sent after this time."""
PACE_SECONDS = 0.05
"""With a rate, records are sent in portions of this duration."""


class FailedLines(NamedTuple):
    """A range of lines that may not be in the stream, and the reason."""

    first: int
    last: int
    reason: str


class ProduceResult(NamedTuple):
    """The result of putting all lines."""

    lines: int
    counts: PutCounts
    not_put: list[FailedLines]
    failure: str | None
    """Why it ended before the end of the input."""
    seconds: float


MAX_LINE_BYTES = 16 << 20
"""The largest record is 10 MiB, and base64 makes it a third longer."""
NULL = b"null"


class RecordLine(msgspec.Struct):
    """A record as a line of JSON, as ``consume`` writes it."""

    partition_key: str | None = None
    explicit_hash_key: str | None = None
    data: msgspec.Raw = msgspec.Raw(NULL)
    """A string is put as UTF-8 text, any other JSON value unchanged."""
    data_base64: str | None = None


class KeySource(NamedTuple):
    """The source of partition keys: ``random``, ``field:NAME`` or ``constant:TEXT``."""

    kind: str
    text: str = ""


def parse_key(text: str) -> KeySource:
    """Return the key source of ``--key``. Raises ConfigurationError."""
    kind, _, rest = text.partition(":")
    if not text.isprintable():
        raise ConfigurationError(
            f"--key {text!r} contains characters that can't be printed: remove them"
        )
    if (kind == "random" and not rest) or (kind in ("field", "constant") and rest):
        return KeySource(kind, rest)
    raise ConfigurationError(f"--key {text}: give random, field:NAME or constant:TEXT")


class LineParser:
    """Parses lines into records."""

    def __init__(
        self,
        *,
        jsonl: bool,
        key: KeySource | None,
        record_bytes: int,
        chance: random.Random,
    ) -> None:
        self._jsonl = jsonl
        self._key = key if key or jsonl else KeySource("random")
        self._record_bytes = record_bytes
        self._chance = chance

    def parse(self, line: bytes) -> Entry | str | None:
        """Return a record, an error text, or None for an empty line between JSON."""
        if len(line) > MAX_LINE_BYTES:
            return f"the line is longer than {MAX_LINE_BYTES:,} bytes"
        if self._jsonl and not line.strip():
            return None
        try:
            record = _decode(line) if self._jsonl else RecordLine()
            data = _data(record) if self._jsonl else line
            key = (
                record.partition_key if self._key is None else self._partition_key(data)
            )
        except (ValueError, msgspec.DecodeError, RecursionError) as error:
            return str(error)
        reason = refusal(data, key, record.explicit_hash_key, self._record_bytes)
        if reason is not None:
            return reason
        assert data is not None and key is not None
        return Entry(data, key, record.explicit_hash_key)

    def _partition_key(self, data: bytes | None) -> str:
        assert self._key is not None
        if self._key.kind == "random":
            return f"{self._chance.getrandbits(64):016x}"
        if self._key.kind == "constant":
            return self._key.text
        return _field(data or b"", self._key.text)


def _data(record: RecordLine) -> bytes | None:
    """Return the data. Raises ValueError for invalid or ambiguous data."""
    data = bytes(record.data)
    if record.data_base64 is not None:
        if data != NULL:
            raise ValueError("data and data_base64 are both set: set one of them")
        try:
            return b64decode(record.data_base64, validate=True)
        except binascii.Error as error:
            raise ValueError(f"data_base64 isn't valid base64: {error}") from None
    if data.startswith(b'"'):
        return msgspec.json.decode(data, type=str).encode()
    return None if data == NULL else data


def _field(data: bytes, name: str) -> str:
    """Return a field of a JSON object as text. Raises ValueError."""
    try:
        value: Any = msgspec.json.decode(data)
    except (ValueError, msgspec.DecodeError) as error:
        raise ValueError(f"no key: the data isn't valid JSON ({error})") from None
    if not isinstance(value, dict) or name not in value:
        raise ValueError(f"no key: the data has no field {name}")
    field = value[name]
    return field if isinstance(field, str) else msgspec.json.encode(field).decode()


_decode = msgspec.json.Decoder(RecordLine).decode


class LineAggregator:
    """Groups records by aggregate, and remembers their line numbers."""

    def __init__(self, shards: Sequence[Shard] | None) -> None:
        self._packer = None if shards is None else Aggregator(shards)
        self._numbers: dict[object, deque[int]] = {}
        """Line numbers in unfinished aggregates, by shard."""

    def add(self, number: int, entry: Entry) -> Iterator[PendingRecord]:
        """Add a record; yield the units that are ready to be put."""
        if self._packer is None:
            key = entry.partition_key
            yield PendingRecord(entry, entry.size, order_key=key, origin=(number,))
            return
        shard = self._packer.shard_of(entry)
        self._numbers.setdefault(shard, deque()).append(number)
        yield from self._numbered(self._packer.pack([entry]))

    def flush(self) -> Iterator[PendingRecord]:
        """Yield the unfinished aggregates."""
        if self._packer is not None:
            yield from self._numbered(self._packer.flush())

    def waiting(self) -> list[int]:
        """Return the line numbers in unfinished aggregates."""
        return [number for waiting in self._numbers.values() for number in waiting]

    def _numbered(self, units: Iterable[PendingRecord]) -> Iterator[PendingRecord]:
        for unit in units:
            waiting = self._numbers[unit.order_key]
            lines = tuple(waiting.popleft() for _ in range(unit.rows))
            yield unit._replace(origin=lines)


class Producer:
    """Puts lines into a stream, in the order of each partition key."""

    def __init__(
        self,
        target: Target,
        parser: LineParser,
        aggregator: LineAggregator,
        *,
        chance: random.Random,
        rate: float | None = None,
        give_up_seconds: float = 300.0,
        on_failed: Callable[[FailedLines], None] = lambda _: None,
    ) -> None:
        self._parser, self._aggregator = parser, aggregator
        self._rate = rate
        self._on_failed = on_failed
        self._stopped = asyncio.Event()
        self._putter = RecordProducer(
            target.put_records,
            ordered=True,
            chance=chance,
            give_up_seconds=give_up_seconds,
        )
        self._lines = self._records = 0
        self._not_put: list[FailedLines] = []
        self._now = asyncio.get_running_loop().time
        self._started = self._now()

    async def run(self, lines: AsyncIterable[Sequence[bytes]]) -> ProduceResult:
        """Put all lines; return the result, even if putting fails."""
        tasks = [
            asyncio.create_task(self._put(lines)),
            asyncio.create_task(self._linger()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            await self._putter.abandon()
        failure = next((end for end in ends if isinstance(end, Exception)), None)
        if failure is not None:
            if not isinstance(failure, KinesumerError):
                raise failure
            self._fail_unacknowledged(str(failure))
        return ProduceResult(
            self._lines,
            self._putter.counts,
            self._not_put,
            str(failure) if failure else None,
            self._now() - self._started,
        )

    def stop(self) -> None:
        """Read no more lines; put those that were read."""
        self._stopped.set()

    async def _put(self, lines: AsyncIterable[Sequence[bytes]]) -> None:
        async for portion in lines:
            for line in portion:
                await self._pace()
                if self._stopped.is_set():
                    break
                await self._put_line(line)
            if self._stopped.is_set():
                break
        await self._putter.add(self._aggregator.flush())
        await self._putter.finish()

    async def _put_line(self, line: bytes) -> None:
        self._lines += 1
        entry = self._parser.parse(line)
        if isinstance(entry, str):
            self._fail(FailedLines(self._lines, self._lines, entry))
        elif entry is not None:
            self._records += 1
            await self._putter.add(self._aggregator.add(self._lines, entry))

    async def _pace(self) -> None:
        if self._rate is None:
            return
        due = self._started + self._records / self._rate
        if due - self._now() > PACE_SECONDS:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), due - self._now())

    async def _linger(self) -> None:
        while True:
            await asyncio.sleep(LINGER_SECONDS)
            await self._putter.add(self._aggregator.flush())
            await self._putter.send()

    def _fail_unacknowledged(self, reason: str) -> None:
        left = [n for unit in self._putter.unacknowledged() for n in _numbers(unit)]
        for first, last in number_ranges([*left, *self._aggregator.waiting()]):
            self._fail(FailedLines(first, last, reason))

    def _fail(self, lines: FailedLines) -> None:
        self._not_put.append(lines)
        self._on_failed(lines)


def _numbers(unit: PendingRecord) -> tuple[int, ...]:
    return unit.origin if isinstance(unit.origin, tuple) else ()


def number_ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last of each run of consecutive numbers, sorted."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges
