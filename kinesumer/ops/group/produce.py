"""Put lines of text or JSON into a stream as records."""

from __future__ import annotations

import asyncio
import binascii
import random
from base64 import b64decode
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count, islice
from typing import Any, NamedTuple

import msgspec

from kinesumer.errors import (
    ConfigurationError,
    FailedRecord,
    KinesumerError,
    PutFailedError,
    RecordRefusedError,
)
from kinesumer.producer.pending import PutFuture
from kinesumer.producer.put_stream import PutCounts
from kinesumer.producer.record_producer import RecordProducer
from kinesumer.wire.put_records import Entry

# With --rate, shorter waits are left out, and sample orders are made for this time.
PACE_SECONDS = 0.05
# The largest record is 10 MiB, and base64 makes it a third longer.
MAX_LINE_BYTES = 16 << 20
NULL = b"null"
KeyOf = Callable[[bytes], str | None]  # returns the partition key of a record's data


class FailedLines(NamedTuple):
    """Consecutive lines that weren't put, or may not have been, and the reason."""

    first: int
    last: int
    reason: str


class ProduceResult(NamedTuple):
    """The result of putting all lines."""

    lines: int
    counts: PutCounts
    not_put: list[FailedLines]
    failure: str | None  # the reason for an early end
    seconds: float


class RecordLine(msgspec.Struct):
    """A line of JSON with one record, as ``kinesumer consume`` writes it."""

    partition_key: str | None = None
    explicit_hash_key: str | None = None
    # A string is put as UTF-8 text, any other JSON value unchanged.
    data: msgspec.Raw = msgspec.Raw(NULL)
    data_base64: str | None = None


def parse_key(text: str, chance: random.Random) -> KeyOf:
    """Return what gives a record's key, as ``--key`` says. Raises ConfigurationError.

    ``none`` is no key.
    """
    kind, _, rest = text.partition(":")
    if not text.isprintable():
        raise ConfigurationError(
            f"--key {text!r} contains characters that can't be printed: remove them"
        )
    if rest and kind == "field":
        return lambda data: _field(data, rest)
    if rest and kind == "constant":
        return lambda _: rest
    if not rest and kind == "random":
        return lambda _: f"{chance.getrandbits(64):016x}"
    if not rest and kind == "none":
        return lambda _: None
    raise ConfigurationError(
        f"--key {text}: give random, field:NAME, constant:TEXT or none"
    )


class LineParser:
    """Parses lines, or lines of JSON, into records.

    Without ``key``, records keep the key that their line of JSON has.
    """

    def __init__(self, *, jsonl: bool, key: KeyOf | None) -> None:
        self._jsonl, self._key = jsonl, key

    def parse(self, line: bytes) -> Entry | str | None:
        """Return a record, an error text, or None for an empty line of JSON input."""
        if len(line) > MAX_LINE_BYTES:
            return f"the line is longer than {MAX_LINE_BYTES:,} bytes"
        if self._jsonl and not line.strip():
            return None
        try:
            record = _decode(line) if self._jsonl else RecordLine()
            data = _data(record) if self._jsonl else line
            key = record.partition_key if self._key is None else self._key(data or b"")
        # msgspec raises RecursionError for deeply nested JSON.
        except (ValueError, msgspec.DecodeError, RecursionError) as error:
            return str(error)
        if data is None:
            return "data is null"
        return Entry(data, key, record.explicit_hash_key)


def _data(record: RecordLine) -> bytes | None:
    """Return a record's data. Raises ValueError for invalid or ambiguous data."""
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


class LineProducer:
    """Puts lines into a stream, in the order of each partition key."""

    def __init__(
        self,
        producer: RecordProducer,
        parser: LineParser,
        *,
        rate: float | None = None,
        on_failed: Callable[[FailedLines], None] = lambda _: None,
    ) -> None:
        self._producer, self._parser = producer, parser
        self._rate, self._on_failed = rate, on_failed
        self._stopped = asyncio.Event()
        self.lines: int = 0  # that were read so far
        self._records = 0
        # The lines that Kinesis hasn't accepted yet, as far as this object knows.
        self._pending: deque[tuple[int, PutFuture]] = deque()
        self._adding: int | None = None  # the line that waits for memory
        self._not_put: list[FailedLines] = []
        self._now = asyncio.get_running_loop().time
        self._started = self._now()

    async def run(self, lines: AsyncIterable[Sequence[bytes]]) -> ProduceResult:
        """Put all lines; return the result, even if putting fails."""
        work = self._put(lines), self._producer.failure()
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            # failure() ends only by an error; then reading lines must end, too.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            await self._producer.abandon(
                KinesumerError("the input ended early; put the lines again")
            )
        failure = next((end for end in ends if isinstance(end, Exception)), None)
        reason = None
        if failure is not None:
            if not isinstance(failure, KinesumerError):
                raise failure
            # The message of PutFailedError is for callers of the library.
            is_put_failure = isinstance(failure, PutFailedError)
            reason = str(failure.__cause__ if is_put_failure else failure)
            self._fail_pending(reason)
        return ProduceResult(
            self.lines,
            self._producer.counts,
            self._not_put,
            reason,
            self._now() - self._started,
        )

    def stop(self) -> None:
        """Stop reading lines; the lines already read are put."""
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
        await self._producer.flush()
        self._take_results()

    async def _put_line(self, line: bytes) -> None:
        self.lines += 1
        entry = self._parser.parse(line)
        reason = entry if isinstance(entry, str) else None
        if isinstance(entry, Entry):
            reason = await self._producer.stream.refusal(entry)
        if reason is not None:
            self._fail(FailedLines(self.lines, self.lines, reason))
        elif isinstance(entry, Entry):
            self._records += 1
            self._adding = self.lines
            future = await self._producer.add(entry)
            self._adding = None
            self._pending.append((self.lines, future))
            self._take_results()

    def _take_results(self) -> None:
        """Take the first results, as far as they have arrived.

        Raise PutFailedError unless Kinesis has refused only the line itself.
        """
        while self._pending and self._pending[0][1].done():
            line, future = self._pending[0]
            error = future.exception()
            if error is not None and not self._note_refusal(line, error):
                raise error
            self._pending.popleft()

    def _note_refusal(self, line: int, error: PutFailedError) -> bool:
        """Return whether Kinesis has refused only the line itself. If so, report it."""
        is_refused = isinstance(error.__cause__, RecordRefusedError)
        if is_refused:
            self._fail(FailedLines(line, line, error.records[0].reason))
        return is_refused

    async def _pace(self) -> None:
        if self._rate is None:
            return
        due = self._started + self._records / self._rate
        if due - self._now() > PACE_SECONDS:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), due - self._now())

    def _fail_pending(self, reason: str) -> None:
        numbers = []
        for line, future in self._pending:
            error = future.exception()
            if error is not None and not self._note_refusal(line, error):
                numbers.append(line)
        if self._adding is not None:
            numbers.append(self._adding)
        for first, last in _number_ranges(numbers):
            self._fail(FailedLines(first, last, reason))

    def _fail(self, lines: FailedLines) -> None:
        self._not_put.append(lines)
        self._on_failed(lines)


def reported_by_its_future(_: FailedRecord) -> None:
    """Do nothing about a refused record, so that it doesn't end the others."""


def _number_ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last number of each consecutive range, sorted."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges


def parse_rate(text: str) -> float:
    """Return the records per second of ``100/s`` or ``100``. Raises ConfigurationError.

    The rate must be more than 0, and at most a million.
    """
    try:
        rate = float(text.removesuffix("/s"))
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 1_000_000:
        raise ConfigurationError(
            f"--generate {text}: give the records per second, such as 100/s"
        )
    return rate


def sample_order(order_id: int, chance: random.Random, now: float) -> bytes:
    """Return an order of a random customer as JSON; ``now`` is seconds since 1970."""
    moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    order = {
        "order_id": order_id,
        # Customers are the partition keys. That many spread over the shards evenly.
        "customer": f"customer-{chance.randrange(1000):03}",
        "total": chance.randrange(100, 50_000) / 100,
        "ordered_at": moment.replace("+00:00", "Z"),
    }
    return msgspec.json.encode(order)


async def sample_orders(
    rate: float, *, limit: int | None, chance: random.Random, wall: Callable[[], float]
) -> AsyncIterator[Sequence[bytes]]:
    """Yield sample orders in portions, ``limit`` in all; None for no end.

    The consumer of the portions keeps to the rate. ``wall`` returns the time in seconds
    since 1970.
    """
    numbers = islice(count(1), limit)
    # Orders that are put together are made together, with one time.
    while portion := list(islice(numbers, max(1, int(rate * PACE_SECONDS)))):
        await asyncio.sleep(0)
        now = wall()
        yield [sample_order(number, chance, now) for number in portion]
