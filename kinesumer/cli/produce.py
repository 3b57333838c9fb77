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
    from kinesumer.cli.input_lines import InputLines
    from kinesumer.cli.options import CommonOptions
    from kinesumer.model.streams import Stream


class Request(NamedTuple):
    """What to put, where, and how."""

    stream: Stream
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
    help="A line is a record's data, or a JSON object: partition_key, data or "
    "data_base64, and optionally explicit_hash_key. `consume` writes such objects.",
)
@click.option(
    "--key",
    metavar="random|field:NAME|constant:TEXT",
    help="The source of partition keys; field is a field of the data, which is JSON. "
    "Default: random for lines, and partition_key for jsonl.",
)
@click.option(
    "--rate",
    type=options.FiniteFloat(0, min_open=True),
    help="Records per second.",
)
@click.option("--aggregate", is_flag=True, help="Aggregate records as the KPL does.")
@click.option(
    "--give-up",
    metavar="SECONDS",
    type=options.FiniteFloat(0, min_open=True),
    default=300.0,
    show_default=True,
    help="End if Kinesis accepts nothing for this long.",
)
@options.region
@options.as_json
@options.roles
@options.pass_common
def produce(
    common: CommonOptions,
    stream: str,
    file: str | None,
    kind: str,
    key: str | None,
    rate: float | None,
    aggregate: bool,
    give_up: float,
) -> None:
    """Put lines from a file or from standard input into a stream, for tests.

    Records with the same partition key keep their order. The command retries what
    Kinesis throttles. Ctrl-C ends the input and puts the lines read so far; a second
    Ctrl-C stops at once. The exit status is 1 if a line wasn't put; the command names
    the line.
    """
    from kinesumer.admin.produce import parse_key

    request = Request(
        common.roles().stream(stream),
        None if file == "-" else file,
        kind == "jsonl",
        parse_key(key) if key is not None else None,
        rate,
        aggregate,
        give_up,
    )
    outcome = asyncio.run(_produce(request, common.region))
    if common.as_json:
        _print_json(stream, outcome)
    else:
        _print_summary(outcome)
    if outcome.failure is not None:
        raise KinesumerError(outcome.failure)
    if outcome.not_put:
        click.get_current_context().exit(1)


async def _produce(request: Request, region: str | None) -> ProduceResult:
    from kinesumer.admin.produce import LineAggregator, LineParser, Producer
    from kinesumer.aws.kinesis import open_source
    from kinesumer.aws.session import ClientFactory
    from kinesumer.cli.input_lines import InputLines

    lines = InputLines(request.file)
    async with ClientFactory(region=region) as clients:
        source = await open_source(clients, request.stream)
        info = await source.describe()
        if info.status in ("CREATING", "DELETING"):
            raise KinesumerError(
                f"stream {info.arn} is {info.status.lower()}; wait until it is active"
            )
        chance = random.Random()
        parser = LineParser(
            jsonl=request.jsonl,
            key=request.key,
            record_bytes=info.max_record_bytes,
            chance=chance,
        )
        producer = Producer(
            source,
            parser,
            LineAggregator(await source.list_shards() if request.aggregate else None),
            chance=chance,
            rate=request.rate,
            give_up_seconds=request.give_up_seconds,
            on_failed=_print_not_put,
        )
        return await _run_until_stopped(producer, lines)


async def _run_until_stopped(producer: Producer, lines: InputLines) -> ProduceResult:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(producer.run(lines))

    def stop() -> None:
        click.echo("ending: putting the lines read so far (again: stop now)", err=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.default_int_handler)
        producer.stop()
        lines.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    return await task


def _print_not_put(failure: FailedLines) -> None:
    first, last, reason = failure
    lines = f"line {first}" if first == last else f"lines {first} to {last}"
    click.echo(f"not put: {lines}: {escape_unprintable(reason)}", err=True)


def _print_summary(outcome: ProduceResult) -> None:
    counts = outcome.counts
    click.echo(
        f"{counts.rows:,} of {outcome.lines:,} lines put as {counts.records:,} "
        f"records ({counts.bytes:,} bytes) in {counts.requests:,} requests and "
        f"{outcome.seconds:.1f} s; {counts.retried:,} were sent again"
    )


def _print_json(stream: str, outcome: ProduceResult) -> None:
    counts = outcome.counts
    report = {
        "version": options.REPORT_VERSION,
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
    click.echo(json.dumps(report))
