"""``kinesumer produce``."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from typing import TYPE_CHECKING, NamedTuple

import click

from kinesumer.cli import options
from kinesumer.errors import KinesumerError
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from kinesumer.admin.produce import FailedLines, KeySource, Producer, ProduceResult
    from kinesumer.cli.input_lines import Lines
    from kinesumer.model.streams import Stream

VERSION = 1


class Wanted(NamedTuple):
    """What was asked for."""

    stream: Stream
    region: str | None
    file: str | None
    jsonl: bool
    key: KeySource | None
    rate: float | None
    aggregate: bool
    give_up_seconds: float


@click.command()
@click.argument("stream")
@click.argument("file", required=False)
@click.option(
    "--input",
    "kind",
    type=click.Choice(["lines", "jsonl"]),
    default="lines",
    show_default=True,
    help="A line is a record's data, or a JSON object with partition_key, data or "
    "data_base64, and explicit_hash_key if wanted: what consume writes.",
)
@click.option(
    "--key",
    metavar="random|field:NAME|constant:TEXT",
    help="Where partition keys come from: field is one of the data's JSON. By default "
    "random for lines, and partition_key for jsonl.",
)
@click.option("--rate", type=options.Real(0, min_open=True), help="Records per second.")
@click.option("--aggregate", is_flag=True, help="Pack records as the KPL does.")
@click.option(
    "--give-up",
    metavar="SECONDS",
    type=options.Real(0, min_open=True),
    default=300.0,
    show_default=True,
    help="End when Kinesis has taken nothing for so long.",
)
@options.region
@options.as_json
@options.roles
@options.external_id
def produce(
    stream: str,
    file: str | None,
    kind: str,
    key: str | None,
    rate: float | None,
    aggregate: bool,
    give_up: float,
    region: str | None,
    as_json: bool,
    role: tuple[str, ...],
    external_id: str | None,
) -> None:
    """Put lines from a file or standard input into a stream, for trials.

    Records of one partition key are put in their order; what Kinesis refuses for now is
    tried again. Ctrl-C ends the input; what was taken is still put, and a second one
    gives that up. The exit status is 1 if a line wasn't put; it is named.
    """
    from kinesumer.admin.connect import parse_roles
    from kinesumer.admin.produce import parse_key

    wanted = Wanted(
        parse_roles(role, external_id).stream(stream),
        region,
        None if file == "-" else file,
        kind == "jsonl",
        parse_key(key) if key is not None else None,
        rate,
        aggregate,
        give_up,
    )
    outcome = asyncio.run(_produce(wanted))
    _tell(stream, outcome, as_json)
    if outcome.failure is not None:
        raise KinesumerError(outcome.failure)
    if outcome.not_put:
        click.get_current_context().exit(1)


async def _produce(wanted: Wanted) -> ProduceResult:
    from kinesumer.admin.produce import LineAggregator, LineParser, Producer
    from kinesumer.aws.kinesis import open_source
    from kinesumer.aws.session import ClientFactory
    from kinesumer.cli.input_lines import Lines

    lines = Lines(wanted.file)
    async with ClientFactory(region=wanted.region) as clients:
        source = await open_source(clients, wanted.stream)
        info = await source.describe()
        if info.status in ("CREATING", "DELETING"):
            raise KinesumerError(f"stream {info.arn} is {info.status.lower()}")
        chance = random.Random()
        parser = LineParser(
            jsonl=wanted.jsonl,
            key=wanted.key,
            record_bytes=info.max_record_bytes,
            chance=chance,
        )
        producer = Producer(
            source,
            parser,
            LineAggregator(await source.list_shards() if wanted.aggregate else None),
            chance=chance,
            rate=wanted.rate,
            give_up_seconds=wanted.give_up_seconds,
            say=_say_not_put,
        )
        return await _until_stopped(producer, lines)


async def _until_stopped(producer: Producer, lines: Lines) -> ProduceResult:
    loop = asyncio.get_running_loop()
    putting = asyncio.ensure_future(producer.run(lines))

    def stop() -> None:
        click.echo("ending: what was taken is put (again: stop at once)", err=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.default_int_handler)
        producer.stop()
        lines.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    return await putting


def _say_not_put(part: FailedLines) -> None:
    several = f"lines {part.first} to {part.last}"
    lines = f"line {part.first}" if part.first == part.last else several
    click.echo(f"not put: {lines}: {escape_unprintable(part.reason)}", err=True)


def _tell(stream: str, outcome: ProduceResult, as_json: bool) -> None:
    counts = outcome.counts
    if not as_json:
        click.echo(
            f"{counts.rows:,} of {outcome.lines:,} lines put as {counts.records:,} "
            f"records ({counts.bytes:,} bytes) in {counts.requests:,} requests and "
            f"{outcome.seconds:.1f} s; {counts.retried:,} were sent again"
        )
        return
    told = {
        "version": VERSION,
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
    click.echo(json.dumps(told))
