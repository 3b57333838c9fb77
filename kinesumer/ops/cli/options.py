"""The options that several commands share, and the helpers that depend on them."""

from __future__ import annotations

import asyncio
import inspect
import math
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any

import click

from kinesumer.aws.session import ClientFactory
from kinesumer.config import STATE_STORE, TABLE_VARIABLE
from kinesumer.errors import ConfigurationError
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import stream_name
from kinesumer.model.validation import validate_name
from kinesumer.ops.cli.console import print_json, progress
from kinesumer.ops.cli.record_output import FORMATS
from kinesumer.ops.group import connect
from kinesumer.ops.group.connect import operator_context
from kinesumer.ops.group.fleet_store import OperatorStore
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.text import MAX_NAMED, abbreviate, escape_unprintable


class FiniteFloat(click.FloatRange):
    """A finite number within a range. ``click.FloatRange`` accepts nan and inf."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number. Invalid text raises the same error as click's types."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} must be a finite number.", param, ctx)
        return number


def _option(*names: str, **settings: Any) -> Any:
    """Return a dataclass field that declares an option."""
    declaration = click.Option(names, **settings)
    return field(default=settings.get("default"), metadata={"option": declaration})


@dataclass
class CommonOptions:
    """The options that commands share. Each field declares one, and has its value."""

    app: str = _option(
        "--app",
        envvar="KINESUMER_APP",
        required=True,
        show_envvar=True,
        help="The group. Clients of one app share the streams.",
    )
    table: str = _option(
        "--table",
        envvar=TABLE_VARIABLE,
        default=STATE_STORE,
        show_default=True,
        show_envvar=True,
        help="The DynamoDB table of the state store.",
    )
    region: str | None = _option(
        "--region", help="The AWS region. Default: from the environment or the profile."
    )
    as_json: bool = _option("--json", "as_json", is_flag=True, help="Print JSON.")
    verbose: bool = _option(
        "-v",
        "--verbose",
        is_flag=True,
        help="Show positions too. Lines can be longer than the terminal.",
    )
    role: tuple[str, ...] = _option(
        "--role",
        metavar="[STREAM=]ARN",
        multiple=True,
        help="A role to assume to read all streams, or one stream. Repeatable.",
    )
    external_id: str | None = _option(
        "--external-id", help="The external ID that the roles require."
    )
    streams: tuple[str, ...] = _option(
        "--stream",
        "streams",
        multiple=True,
        help="Only this stream: a name, an ARN, or table/NAME. Repeatable.",
    )
    stream: str | None = _option(
        "--stream", help="This stream: a name, an ARN, or table/NAME."
    )
    shard: str | None = _option(
        "--shard", metavar="ID", help="Only this shard of the stream."
    )
    everything: bool = _option("--all", "everything", is_flag=True, help="All streams.")
    lag: bool = _option(
        "--lag/--no-lag",
        default=True,
        help="Read from Kinesis how far each shard is behind. Needs access to the "
        "streams.",
    )
    output: str = _option(
        "--output",
        type=click.Choice(list(FORMATS)),
        default="jsonl",
        show_default=True,
        help="One JSON object per record, only its data, or only the number of "
        "records.",
    )
    start: str = _option(
        "--start",
        default="LATEST",
        show_default=True,
        help="LATEST, TRIM_HORIZON, a time like 2026-01-31T12:00:00Z, or 90m, 2h, 3d "
        "ago.",
    )
    until: str | None = _option(
        "--until",
        help="End when all records are read that arrived before this: now, or a time "
        "as for --start.",
    )
    limit: int | None = _option(
        "--limit", type=click.IntRange(1), help="End after this many records."
    )
    dry_run: bool = _option(
        "--dry-run", is_flag=True, help="Show the changes; make none."
    )
    yes: bool = _option("--yes", is_flag=True, help="Don't ask for confirmation.")
    wait_seconds: float = _option(
        "--wait",
        "wait_seconds",
        metavar="SECONDS",
        type=FiniteFloat(min=0),
        default=60.0,
        show_default=True,
        help="How long to wait until clients have applied the change. 0: don't wait.",
    )

    def __post_init__(self) -> None:
        """Raise ConfigurationError for a name that can't be used."""
        for name in ("app", "table", "region"):
            if (value := getattr(self, name)) is not None:
                validate_name(name, value)

    def roles(self) -> connect.Roles:
        """Return the role for each stream. Raises ConfigurationError."""
        return connect.parse_roles(self.role, self.external_id)

    def clients(self) -> ClientFactory:
        """Return a factory of AWS clients, which the caller opens by ``async with``."""
        # Import AWS's SDK late: importing it is slow, and usage errors don't need it.
        from kinesumer.aws.session import ClientFactory

        return ClientFactory(region=self.region)

    @asynccontextmanager
    async def connect(
        self, *, waits: bool = False
    ) -> AsyncIterator[tuple[ClientFactory, OperatorStore]]:
        """Open AWS clients and the verified state store, as ``connect.connect()``."""
        async with AsyncExitStack() as stack:
            with progress("connecting"):
                opened = await stack.enter_async_context(
                    connect.connect(self.table, self.region, waits=waits)
                )
            yield opened

    @asynccontextmanager
    async def operate(self) -> AsyncIterator[tuple[ClientContext, ClientFactory]]:
        """Open AWS clients, and the context of a command that changes rows."""
        async with self.connect() as (clients, store):
            yield operator_context(self.app, store), clients

    def require_target(self) -> None:
        """Raise ConfigurationError unless the options name exactly one target."""
        if self.everything == bool(self.stream):
            raise ConfigurationError("pass either --stream or --all")
        if self.shard and self.everything:
            raise ConfigurationError("--shard needs --stream; remove --all")

    def confirm(self, question: str) -> None:
        """Ask on the terminal unless --yes was passed. A "no" ends the command.

        Raises ConfigurationError if standard input isn't a terminal.
        """
        if not (self.yes or sys.stdin.isatty()):
            raise ConfigurationError("no terminal to confirm on; pass --yes")
        if not self.yes:
            # Standard output may be redirected to a file.
            click.confirm(question, abort=True, err=True)

    def print_report(self, report: dict[str, Any], *, indent: int | None = 2) -> None:
        """Print a report as JSON that begins with version, app and table."""
        print_json(report, indent=indent, app=self.app, table=self.table)

    def fail_if_still_held(self, shards: Sequence[ShardRow], what: str) -> None:
        """End the command with status 1 if clients consume shards after --wait."""
        if shards and self.wait_seconds:
            click.echo(
                f"! after {self.wait_seconds:g} s still consumed {what}: "
                f"{named(shards)}; clients release them when user code has finished, "
                "or when their owner is declared dead",
                err=True,
            )
            click.get_current_context().exit(1)


SHARED = {one.name: one.metadata["option"] for one in fields(CommonOptions)}
ROLES = ("role", "external_id")
TARGET = ("stream", "shard", "everything")
READING = ("output", "start", "until", "limit")


def command(
    *shared: str, group: click.Group | None = None, **settings: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a function, or a coroutine, a command of ``group``.

    The function takes a CommonOptions, of which ``shared`` are the fields that become
    options, and its own parameters. ``settings`` are those of ``click.command``.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        def run(**values: Any) -> None:
            common = CommonOptions(**{key: values.pop(key) for key in shared})
            # AWS's clients are asynchronous, so most commands are coroutines.
            if inspect.iscoroutine(result := function(common, **values)):
                asyncio.run(result)

        made: click.Command = click.command(**settings)(run)
        made.params += [SHARED[key] for key in shared]
        if group is not None:
            group.add_command(made)
        return made

    return decorate


def named(shards: Sequence[ShardRow]) -> str:
    """Return a text that names the shards, their streams and their owners."""
    texts = [
        f"{row.key.shard_id} of {stream_name(row.key.stream_arn)} by {row.owner_id}"
        if row.owner_id
        else row.key.shard_id
        for row in shards
    ]
    return escape_unprintable(abbreviate(texts, MAX_NAMED))


def shards_json(shards: Sequence[ShardRow]) -> list[dict[str, Any]]:
    """Return the shards and their owners for a report."""
    return [
        {
            "stream_arn": row.key.stream_arn,
            "shard_id": row.key.shard_id,
            "owner": row.owner_id or None,
        }
        for row in shards
    ]
