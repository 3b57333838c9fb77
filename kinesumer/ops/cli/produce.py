"""The command ``kinesumer produce``, and how it reads lines."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence

import click

from kinesumer.aws.kinesis import open_source
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.ops.cli.console import print_json, progress
from kinesumer.ops.cli.options import ROLES, CommonOptions, FiniteFloat, command
from kinesumer.ops.group.produce import (
    MAX_LINE_BYTES,
    FailedLines,
    LineParser,
    LineProducer,
    ProduceResult,
    parse_key,
    parse_rate,
    reported_by_its_future,
    sample_orders,
)
from kinesumer.producer.client import open_record_producer
from kinesumer.producer.record_producer import TURN_BYTES
from kinesumer.runtime.stop_signals import StopSignals
from kinesumer.runtime.text import counted, escape_unprintable
from kinesumer.runtime.threads import start_thread


@command("region", "as_json", *ROLES)
@click.argument("stream")
@click.argument("file", required=False)
@click.option(
    "--input",
    "kind",
    type=click.Choice(["lines", "jsonl"]),
    default="lines",
    show_default=True,
    help="A line is a record's data, or a JSON object: partition_key, data or "
    "data_base64, and optionally explicit_hash_key. `consume` writes such objects.",
)
@click.option(
    "--key",
    metavar="random|field:NAME|constant:TEXT|none",
    help="The source of partition keys; field is a field of the data, which is JSON. "
    "Only a stream that distributes records by AUTO takes records with none. "
    "Default: random for lines, and partition_key for jsonl.",
)
@click.option(
    "--rate",
    type=FiniteFloat(0, min_open=True),
    help="Records per second.",
)
@click.option(
    "--generate",
    metavar="RATE",
    help="Put sample orders in place of lines, such as 100/s, until Ctrl-C or the "
    "limit.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="With --generate: end after this many records.",
)
@click.option("--aggregate", is_flag=True, help="Aggregate records as the KPL does.")
@click.option(
    "--give-up",
    metavar="SECONDS",
    type=FiniteFloat(0, min_open=True),
    default=300.0,
    show_default=True,
    help="End if Kinesis accepts nothing for this long.",
)
async def produce(
    common: CommonOptions,
    stream: str,
    file: str | None,
    kind: str,
    key: str | None,
    rate: float | None,
    generate: str | None,
    limit: int | None,
    aggregate: bool,
    give_up: float,
) -> None:
    """Put lines from a file or from standard input into a stream, for tests.

    With --generate, put sample orders: JSON with an id, a customer, a total and a time.
    The customer is the partition key.

    Records with the same partition key keep their order, unless the stream distributes
    records by AUTO. The command retries what Kinesis throttles. Ctrl-C ends the input
    and puts the lines read so far; a second Ctrl-C stops at once. The exit status is 1
    if a line wasn't put; the command names the line.
    """
    [source] = common.roles().streams([stream])
    chance = random.Random()
    if key is None and kind == "lines":
        key = "random" if generate is None else "field:customer"
    keys = None if key is None else parse_key(key, chance)
    lines: Lines
    if generate is None:
        if limit is not None:
            raise ConfigurationError("--limit needs --generate: pass it too")
        lines = InputLines(None if file == "-" else file)
    else:
        if file is not None or rate is not None or kind != "lines":
            raise ConfigurationError(
                "--generate replaces FILE, --input and --rate: leave them out"
            )
        rate = parse_rate(generate)
        lines = sample_orders(rate, limit=limit, chance=chance, wall=time.time)
    async with common.clients() as clients:
        opened = await open_source(clients, source)
        info = await opened.describe()
        parser = LineParser(jsonl=kind == "jsonl", key=keys)
        record_producer = await open_record_producer(
            opened,
            info,
            aggregate=aggregate,
            ordered=info.routes_by_key,
            chance=chance,
            on_refused=reported_by_its_future,
            give_up_seconds=give_up,
        )
        producer = LineProducer(
            record_producer, parser, rate=rate, on_failed=_print_not_put
        )
        outcome = await _run_until_stopped(producer, lines)
    _print_outcome(common, stream, outcome)
    if outcome.failure is not None:
        raise KinesumerError(outcome.failure)
    if outcome.not_put:
        click.get_current_context().exit(1)


async def _run_until_stopped(producer: LineProducer, lines: Lines) -> ProduceResult:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        text = "ending: putting the lines read so far (again: stop now)"
        print(text, file=sys.stderr)
        producer.stop()
        if isinstance(lines, InputLines):
            lines.stop()

    with StopSignals(lambda: loop.call_soon_threadsafe(stop)):
        if isinstance(lines, InputLines):
            return await producer.run(lines)
        with progress(lambda: f"{producer.lines:,} records made (Ctrl-C ends)"):
            return await producer.run(lines)


def _print_not_put(failure: FailedLines) -> None:
    first, last, reason = failure
    lines = f"line {first}" if first == last else f"lines {first} to {last}"
    print(f"not put: {lines}: {escape_unprintable(reason)}", file=sys.stderr)


def _print_outcome(common: CommonOptions, stream: str, outcome: ProduceResult) -> None:
    counts = outcome.counts
    if not common.as_json:
        click.echo(
            f"{counts.rows:,} of {counted(outcome.lines, 'line')} put as "
            f"{counted(counts.records, 'record')} ({counted(counts.bytes, 'byte')}) in "
            f"{counted(counts.requests, 'request')} and {outcome.seconds:.1f} s; "
            f"{counts.retried:,} sent again"
        )
        return
    report = {
        "stream": stream,
        "lines": outcome.lines,
        "records": counts.rows,
        "kinesis_records": counts.records,
        "bytes": counts.bytes,
        "requests": counts.requests,
        "retried": counts.retried,
        "seconds": round(outcome.seconds, 3),
        "failure": outcome.failure,
        "not_put": [
            {"first_line": first, "last_line": last, "reason": reason}
            for first, last, reason in outcome.not_put
        ],
    }
    print_json(report, indent=None)


# --- the input ------------------------------------------------------------------------


class LineSplitter:
    """Splits chunks into lines. Keeps only the beginning of a line that is too long."""

    def __init__(self) -> None:
        self._partial = bytearray()

    def lines(self, chunk: bytes) -> list[bytes]:
        """Return the lines that a chunk completes; an empty one completes the last."""
        if not chunk:
            return [self._take_line()] if self._partial else []
        *complete, rest = chunk.split(b"\n")
        if complete:
            self._append(complete[0])
            complete[0] = self._take_line()
        self._append(rest)
        return complete

    def _append(self, part: bytes) -> None:
        # One byte more than allowed shows the parser that the line is too long.
        self._partial += part[: MAX_LINE_BYTES + 1 - len(self._partial)]

    def _take_line(self) -> bytes:
        line = bytes(self._partial)
        self._partial.clear()
        return line


class InputLines:
    """Yields lines in portions, until the end of the file or ``stop()``.

    A read from a silent terminal or pipe can't be interrupted. So a daemon thread
    reads, and ends with the process.
    """

    def __init__(self, path: str | None) -> None:
        try:
            # Standard input is descriptor 0.
            self._file = 0 if path is None else os.open(path, os.O_RDONLY)
        except OSError as error:
            raise ConfigurationError(
                f"can't read {path}: {error.strerror}; pass a readable file"
            ) from error
        self._loop = asyncio.get_running_loop()
        # The thread reads only requested chunks, so a fast pipe can't fill the memory.
        self._requests = threading.Semaphore(0)
        self._chunks: asyncio.Queue[bytes | OSError | None] = asyncio.Queue()
        self._splitter = LineSplitter()
        start_thread(self._read, "input")

    def stop(self) -> None:
        """End after the last complete line."""
        self._chunks.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Sequence[bytes]]:
        while True:
            self._requests.release()
            chunk = await self._chunks.get()
            if isinstance(chunk, OSError):
                raise ConfigurationError(
                    f"can't read the input: {chunk.strerror}; pass a readable file"
                )
            if chunk is not None:
                yield self._splitter.lines(chunk)
            if not chunk:
                return

    def _read(self) -> None:
        for chunk in self._read_chunks():
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the loop is closed, since the command has ended

    def _read_chunks(self) -> Iterator[bytes | OSError]:
        # A thread that waits in a buffered reader would block the interpreter's exit.
        chunk = b"?"
        while chunk:
            self._requests.acquire()
            try:
                chunk = os.read(self._file, TURN_BYTES)
            except OSError as error:
                yield error
                return
            yield chunk
        if self._file != 0:
            os.close(self._file)


Lines = InputLines | AsyncIterator[Sequence[bytes]]
