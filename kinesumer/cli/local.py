"""``kinesumer local``."""

from __future__ import annotations

import asyncio
import re
import sys

import click

from kinesumer.errors import ConfigurationError

NAME = re.compile("[a-zA-Z0-9_.-]{1,128}")
SHARD_COUNT = re.compile("[1-9][0-9]{0,4}")


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port to listen on. Default: a free port.",
)
@click.option(
    "--stream",
    "streams",
    metavar="NAME[=SHARDS]",
    multiple=True,
    help="A stream to create, with one shard unless a number is given. Repeatable.",
)
def local(port: int, streams: tuple[str, ...]) -> None:
    """Serve Kinesis, DynamoDB and STS on 127.0.0.1 until Ctrl-C.

    Prints the environment variables that point AWS SDKs in another shell to this
    server. All data is lost when the command ends. Needs an extra:
    pip install 'kinesumer[local]'.
    """
    from kinesumer.local import AwsError, EmbeddedAws
    from kinesumer.local.server import serve

    aws = EmbeddedAws(port=port)
    for name, shards in map(_parse_stream, streams):
        try:
            aws.create_stream(name, shards)
        except AwsError as error:
            raise ConfigurationError(f"--stream {name}: {error.message}") from error
    asyncio.run(serve(aws, sys.stdout))


def _parse_stream(text: str) -> tuple[str, int]:
    """Return the name and the shard count of --stream. Raises ConfigurationError."""
    name, equals, shards = text.partition("=")
    if not NAME.fullmatch(name) or (equals and not SHARD_COUNT.fullmatch(shards)):
        raise ConfigurationError(
            f"--stream {text}: give a name, or a name and a number of shards, such as "
            "orders=4"
        )
    return name, int(shards or 1)
