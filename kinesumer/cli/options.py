"""The options that several commands share, and the helpers that depend on them."""

from __future__ import annotations

import json
import math
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kinesumer.errors import ConfigurationError
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from kinesumer.admin.connect import Roles
    from kinesumer.aws.dynamodb import DynamoStateStore
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.rows import ShardRow
    from kinesumer.runtime.context import ClientContext

DEFAULT_TABLE = "kinesumer-state-store"
REPORT_VERSION = 1
MAX_NAMED_SHARDS = 10
"""A text names at most this many shards; JSON names all."""


@dataclass
class CommonOptions:
    """The values of the options that a command shares with others.

    Each shared option stores its value here, so that a command takes this object in
    place of one parameter for each of them.
    """

    app: str = ""
    table: str = DEFAULT_TABLE
    region: str | None = None
    as_json: bool = False
    role: tuple[str, ...] = ()
    external_id: str | None = None
    streams: tuple[str, ...] = ()
    stream: str | None = None
    shard: str | None = None
    everything: bool = False
    lag: bool = True
    dry_run: bool = False
    yes: bool = False
    wait_seconds: float = 0.0

    def roles(self) -> Roles:
        """Return which role reads which stream. Raises ConfigurationError."""
        from kinesumer.admin.connect import parse_roles

        return parse_roles(self.role, self.external_id)

    def connect(
        self,
    ) -> AbstractAsyncContextManager[tuple[ClientFactory, DynamoStateStore]]:
        """Open AWS clients and the state store, which is verified."""
        # Imported late, like all AWS code: `--help` and wrong use stay fast.
        from kinesumer.admin.connect import connect

        return connect(self.table, self.region)

    @asynccontextmanager
    async def operate(self) -> AsyncIterator[tuple[ClientContext, ClientFactory]]:
        """Open the context of a command that changes rows, and AWS clients."""
        from kinesumer.admin.context import operator_context

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
        if self.yes:
            return
        if not sys.stdin.isatty():
            raise ConfigurationError("no terminal to confirm on; pass --yes")
        click.confirm(question, abort=True, err=True)

    def print_report(self, fields: dict[str, Any], *, indent: int | None = 2) -> None:
        """Print fields as JSON, after the report's version, the app and the table."""
        about = {"version": REPORT_VERSION, "app": self.app, "table": self.table}
        click.echo(json.dumps({**about, **fields}, indent=indent))

    def fail_if_still_held(self, shards: Sequence[ShardRow], what: str) -> None:
        """End the command with status 1 if clients still consume shards after --wait.

        The change is stored all the same: clients apply it later.
        """
        if shards and self.wait_seconds:
            click.echo(
                f"! after {self.wait_seconds:g} s still consumed {what}: "
                f"{named(shards)}; clients release them when user code has finished, "
                "or when their owner is declared dead",
                err=True,
            )
            click.get_current_context().exit(1)


pass_common = click.make_pass_decorator(CommonOptions, ensure=True)


class FiniteFloat(click.FloatRange):
    """A number within a range. Neither nan, which every range includes, nor inf."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number. Fails as click's own types do."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} must be a finite number.", param, ctx)
        return number


def _shared(
    *names: str, **settings: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an option whose value is stored in CommonOptions."""

    def store(ctx: click.Context, param: click.Parameter, value: object) -> None:
        # click keeps the object per command, so no value reaches another command.
        assert param.name is not None
        setattr(ctx.ensure_object(CommonOptions), param.name, value)

    return click.option(*names, expose_value=False, callback=store, **settings)


table = _shared(
    "--table",
    envvar="KINESUMER_TABLE",
    default=DEFAULT_TABLE,
    show_default=True,
    show_envvar=True,
    help="The DynamoDB table of the state store.",
)
app = _shared(
    "--app",
    envvar="KINESUMER_APP",
    required=True,
    show_envvar=True,
    help="The group. Clients of one app share the streams.",
)
region = _shared(
    "--region", help="The AWS region. Default: from the environment or the profile."
)
as_json = _shared("--json", "as_json", is_flag=True, help="Print JSON.")
role = _shared(
    "--role",
    metavar="[STREAM=]ARN",
    multiple=True,
    help="A role to assume to read all streams, or one stream. Repeatable.",
)
external_id = _shared("--external-id", help="The external ID that the roles require.")
lag = _shared(
    "--lag/--no-lag",
    default=True,
    help="Read from Kinesis how far each shard is behind. Needs access to the streams.",
)
streams = _shared(
    "--stream",
    "streams",
    multiple=True,
    help="Only this stream: a name or an ARN. Repeatable.",
)
dry_run = _shared("--dry-run", is_flag=True, help="Show the changes; make none.")
yes = _shared("--yes", is_flag=True, help="Don't ask for confirmation.")
wait = _shared(
    "--wait",
    "wait_seconds",
    metavar="SECONDS",
    type=FiniteFloat(min=0),
    default=60.0,
    show_default=True,
    help="How long to wait until clients have applied the change. 0: don't wait.",
)
output = click.option(
    "--output",
    type=click.Choice(["jsonl", "text", "count"]),
    default="jsonl",
    show_default=True,
    help="One JSON object per record, only its data, or only the number of records.",
)


def roles(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --role and --external-id to a command."""
    return role(external_id(command))


def target(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --stream, --shard and --all to a command."""
    for option in (
        _shared("--all", "everything", is_flag=True, help="All streams."),
        _shared("--shard", metavar="ID", help="Only this shard of the stream."),
        _shared("--stream", help="This stream: a name or an ARN."),
    ):
        command = option(command)
    return command


def named(shards: Sequence[ShardRow]) -> str:
    """Return the shards as text, with their streams and owners."""
    from kinesumer.model.streams import stream_name

    texts = [
        f"{row.key.shard_id} of {stream_name(row.key.stream_arn)} by {owner}"
        if (owner := row.owner_id)
        else row.key.shard_id
        for row in shards[:MAX_NAMED_SHARDS]
    ]
    rest = len(shards) - MAX_NAMED_SHARDS
    return escape_unprintable(
        ", ".join([*texts, *([f"{rest} more"] if rest > 0 else [])])
    )


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
