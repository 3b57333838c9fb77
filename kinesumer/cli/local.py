"""``kinesumer local``."""

from __future__ import annotations

import asyncio
import re
import sys

import click

from kinesumer.errors import ConfigurationError

NAME = re.compile("[a-zA-Z0-9_.-]{1,128}")
SHARDS = re.compile("[1-9][0-9]{0,4}")


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Where to listen; by default a free port.",
)
@click.option(
    "--stream",
    "streams",
    metavar="NAME[=SHARDS]",
    multiple=True,
    help="A stream to create, by default with one shard; may be repeated.",
)
def local(port: int, streams: tuple[str, ...]) -> None:
    """Serve Kinesis, DynamoDB and STS on 127.0.0.1 until Ctrl-C.

    Prints the lines that let AWS's SDKs in another shell come here. Nothing is kept
    when it ends. Needs the extra: pip install 'kinesumer[local]'.
    """
    from kinesumer.local import AwsError, EmbeddedAws
    from kinesumer.local.runner import serve

    aws = EmbeddedAws(port=port)
    for name, shards in map(_stream, streams):
        try:
            aws.create_stream(name, shards)
        except AwsError as error:
            raise ConfigurationError(f"--stream {name}: {error.message}") from error
    asyncio.run(serve(aws, sys.stdout))


def _stream(text: str) -> tuple[str, int]:
    """Return the name and the shards that --stream says. Raises ConfigurationError."""
    name, equals, shards = text.partition("=")
    if not NAME.fullmatch(name) or (equals and not SHARDS.fullmatch(shards)):
        raise ConfigurationError(
            f"--stream {text}: give a name, or a name and a number of shards, such as "
            "orders=4"
        )
    return name, int(shards or 1)
