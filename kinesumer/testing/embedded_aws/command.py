"""``kinesumer local``: serve the embedded AWS until a signal."""

from __future__ import annotations

import re
import sys

import click

from kinesumer.errors import ConfigurationError
from kinesumer.ops.cli.options import CommonOptions, command
from kinesumer.testing.embedded_aws.server import EmbeddedAws, serve
from kinesumer.testing.kinesis.requests import AwsError

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
async def local(_: CommonOptions, port: int, streams: tuple[str, ...]) -> None:
    """Serve Kinesis, DynamoDB and STS on 127.0.0.1 until Ctrl-C.

    Prints the environment variables that point AWS SDKs in another shell to this
    server. The state store's table exists from the start, under its default name. An
    account has up to 10,000 open shards, as in AWS's largest regions. All data is lost
    when the command ends. Needs another extra: pip install 'kinesumer[cli,local]'.
    """
    aws = EmbeddedAws(port=port)
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
