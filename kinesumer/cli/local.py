"""``kinesumer local``."""

from __future__ import annotations

import asyncio
import sys

import click


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Where to listen; by default a free port.",
)
def local(port: int) -> None:
    """Serve Kinesis, DynamoDB and STS on 127.0.0.1 until Ctrl-C.

    Prints the lines that let AWS's SDKs in another shell come here. Nothing is kept
    when it ends. Needs the extra: pip install 'kinesumer[local]'.
    """
    from kinesumer.local import EmbeddedAws
    from kinesumer.local.running import serve

    asyncio.run(serve(EmbeddedAws(port=port), sys.stdout))
