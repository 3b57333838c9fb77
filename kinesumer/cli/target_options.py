"""What the commands that change running groups have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kinesumer.cli import options
from kinesumer.errors import ConfigurationError
from kinesumer.model.streams import stream_name
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesumer.model.rows import ShardRow

VERSION = 1
MOST_NAMED = 10
"""Shards that a text names; JSON names all."""

wait = click.option(
    "--wait",
    "wait_seconds",
    metavar="SECONDS",
    type=options.Real(min=0),
    default=60.0,
    show_default=True,
    help="How long to wait until the clients have done it; 0: don't.",
)


def target(command: Callable[..., None]) -> Callable[..., None]:
    """Have a command take --stream and --shard, or --all."""
    for option in (
        click.option("--all", "everything", is_flag=True, help="All streams."),
        click.option("--shard", metavar="ID", help="This shard of the stream only."),
        click.option("--stream", help="This stream: a name or an ARN."),
    ):
        command = option(command)
    return command


def check_target(stream: str | None, shard: str | None, everything: bool) -> None:
    """Raise ConfigurationError unless one thing was meant."""
    if everything == bool(stream):
        raise ConfigurationError("say either --stream or --all")
    if shard and everything:
        raise ConfigurationError("--shard needs --stream, and not --all")


def named(shards: Sequence[ShardRow]) -> str:
    """Return how many shards these are, and who has them."""
    texts = [
        f"{row.key.shard_id} of {stream_name(row.key.stream_arn)} by {owner}"
        if (owner := row.owner_id)
        else row.key.shard_id
        for row in shards[:MOST_NAMED]
    ]
    more = [f"{len(shards) - MOST_NAMED} more"] if len(shards) > MOST_NAMED else []
    return escape_unprintable(", ".join([*texts, *more]))


def as_json(shards: Sequence[ShardRow]) -> list[dict[str, Any]]:
    """Return shards and who has them."""
    return [
        {
            "stream_arn": row.key.stream_arn,
            "shard_id": row.key.shard_id,
            "owner": row.owner_id or None,
        }
        for row in shards
    ]


def late(shards: Sequence[ShardRow], seconds: float, what: str) -> None:
    """End the command with status 1 if clients haven't done it yet: they still will."""
    if shards and seconds:
        click.echo(
            f"! after {seconds:g} s still consumed {what}: {named(shards)}; they are "
            "given up as soon as user code has finished, or their owner is dead",
            err=True,
        )
        click.get_current_context().exit(1)
