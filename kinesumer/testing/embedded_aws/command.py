"""``kinesumer local``: serve the embedded AWS until a signal."""

from __future__ import annotations

import re
import sys

import click

from kinesumer.errors import ConfigurationError
from kinesumer.ops.cli.options import CommonOptions, FiniteFloat, command
from kinesumer.testing.embedded_aws.server import EmbeddedAws, serve
from kinesumer.testing.kinesis.requests import AwsError
from kinesumer.testing.table_streams.settings import HOUR_SECONDS, TableStreamSettings

STREAM = re.compile("([a-zA-Z0-9_.-]{1,128})(?::([1-9][0-9]{0,4}))?")


@command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port to listen on. Default: a free port.",
)
@click.option(
    "--stream",
    "streams",
    metavar="NAME[:SHARDS]",
    multiple=True,
    help="A stream to create, with one shard unless a number is given. Repeatable.",
)
@click.option(
    "--table-partitions",
    type=click.IntRange(1, 10_000),
    default=1,
    help="The partitions of each table with a stream. Default: 1.",
)
@click.option(
    "--table-rollover-seconds",
    type=FiniteFloat(0, min_open=True),
    default=4 * HOUR_SECONDS,
    help="How long a shard of a table's stream is open, before its child takes the "
    "changes. Default: 14400, as in AWS.",
)
async def local(
    _: CommonOptions,
    port: int,
    streams: tuple[str, ...],
    table_partitions: int,
    table_rollover_seconds: float,
) -> None:
    """Serve Kinesis, DynamoDB with its streams, and STS on 127.0.0.1 until Ctrl-C.

    Prints the environment variables that point AWS SDKs in another shell to this
    server. The state store's table exists from the start, under its default name. An
    account has up to 10,000 open shards, as in AWS's largest regions. All data is lost
    when the command ends. Needs another extra: pip install 'kinesumer[cli,local]'.
    """
    settings = TableStreamSettings(
        partitions=table_partitions, rollover_seconds=table_rollover_seconds
    )
    aws = EmbeddedAws(port=port, table_stream_settings=settings)
    for text in streams:
        match = STREAM.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                f"--stream {text}: give a name, or a name and a number of shards, such "
                "as orders:4"
            )
        try:
            aws.create_stream(match[1], int(match[2] or 1))
        except AwsError as error:
            raise ConfigurationError(
                f"--stream {text}: {error.message}; change this option"
            ) from error
    if sys.stdout.isatty():
        click.echo("Paste these lines into another terminal:\n", err=True)
    await serve(aws, sys.stdout)
