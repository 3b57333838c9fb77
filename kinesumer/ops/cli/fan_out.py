"""``kinesumer fan-out``: list, register and deregister the consumers of a stream."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import click

from kinesumer.aws.dynamodb import open_store
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.stream_consumers import StreamConsumer, StreamConsumers
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.model.streams import CONSUMER_NAME
from kinesumer.ops.cli.console import (
    Cell,
    name,
    plain,
    print_json,
    print_lines,
    progress,
    stream_title,
    table,
)
from kinesumer.ops.cli.options import ROLES, CommonOptions, command
from kinesumer.ops.group.client_reports import LiveUses, read_live_uses
from kinesumer.runtime.text import counted, duration_text, escape_unprintable
from kinesumer.wire.rows import timestamp_text

BILLING = "AWS bills a registered consumer for each shard and hour, used or not."


@click.group(name="fan-out")
def fan_out() -> None:
    """List, register and deregister the consumers of a stream (enhanced fan-out).

    AWS bills a registered consumer for each shard and hour, used or not.
    """


class _Opened(NamedTuple):
    """A stream, and access to its consumers."""

    clients: ClientFactory
    arn: str
    consumers: StreamConsumers

    @property
    def title(self) -> str:
        return f"stream {stream_title(self.arn)}"

    async def uses(self, state_store: str) -> tuple[LiveUses | None, str]:
        """Return which apps use consumers; or None, and why this is unknown."""
        try:
            store = await open_store(self.clients, state_store)
            return await read_live_uses(store, time.time()), ""
        except KinesumerError as error:
            return None, str(error)


@asynccontextmanager
async def _open(common: CommonOptions, stream: str) -> AsyncIterator[_Opened]:
    [named] = common.roles().streams([stream])
    async with common.clients() as clients:
        with progress("reading the stream"):
            source = await open_source(clients, named)
            arn = (await source.describe()).arn
        yield _Opened(clients, arn, StreamConsumers(source))


@command("table", *ROLES, "region", "as_json", name="list", group=fan_out)
@click.argument("stream")
async def list_(common: CommonOptions, stream: str) -> None:
    """List the registered consumers of a stream, and the apps that use them.

    An app uses a consumer if a live client in the --table requests it. Programs that
    keep nothing in this table aren't shown.
    """
    async with _open(common, stream) as opened:
        with progress("reading consumers and clients"):
            found = sorted(await opened.consumers.list())
            uses, problem = await opened.uses(common.table)
    apps = {
        one.name: None
        if uses is None
        else dict(sorted(uses.get((opened.arn, one.name), {}).items()))
        for one in found
    }
    if common.as_json:
        consumers = [_report(one) | {"apps": apps[one.name]} for one in found]
        report = {"stream_arn": opened.arn, "consumers": consumers}
        print_json(report | {"use_problem": problem or None})
        return
    titles = "consumer", "status", "age", "used by", "ARN"
    rows: list[list[Cell]] = []
    for one in found:
        used = plain(_apps_text(apps[one.name]))
        rows.append([name(one.name), one.status, _age_text(one), used, one.arn])
    count = counted(len(found), "registered consumer")
    print_lines(
        plain(f"{opened.title}: {count}", "bold"),
        *([table(titles, rows)] if rows else []),
        problems=[f"who uses them is unknown: {problem}"] if problem and rows else [],
        wide=True,
    )


@command("dry_run", "yes", *ROLES, "region", "as_json", group=fan_out)
@click.argument("stream")
@click.argument("consumer", metavar="NAME")
@click.option(
    "--tag",
    "tags",
    metavar="KEY=VALUE",
    multiple=True,
    help="A tag of the new consumer. Repeatable.",
)
async def register(
    common: CommonOptions, stream: str, consumer: str, tags: tuple[str, ...]
) -> None:
    """Register a consumer of a stream, and wait until it can be used.

    Do nothing if it is registered already.
    """
    _check_name(consumer)
    pairs = dict(map(_parse_tag, tags))
    async with _open(common, stream) as opened:
        found = shown = await opened.consumers.find(consumer)
        what = f"stream consumer {consumer} of {opened.title}"
        if found is None:
            click.echo(f"{what} isn't registered. {BILLING}", err=common.as_json)
        if not common.dry_run:
            if found is None:
                common.confirm("Register it?")
            with progress(f"waiting until {consumer} is active"):
                shown = await opened.consumers.require_active(consumer, pairs)
    state = "exists and can be used" if found else "registered"
    text = f"{what}: {state}\n{shown.arn if shown else ''}"
    _print_change(common, opened.arn, shown, text, registered=found is None)


@command("table", "dry_run", "yes", *ROLES, "region", "as_json", group=fan_out)
@click.argument("stream")
@click.argument("consumer", metavar="NAME")
async def deregister(common: CommonOptions, stream: str, consumer: str) -> None:
    """Deregister a consumer of a stream. Positions of apps aren't changed.

    The command fails while a live client in the --table uses the consumer.
    """
    _check_name(consumer)
    async with _open(common, stream) as opened:
        found = await opened.consumers.find(consumer)
        what = f"stream consumer {consumer} of {opened.title}"
        if found is None:
            raise ConfigurationError(
                f"{what} isn't registered: check its name with kinesumer fan-out list"
            )
        with progress("reading clients"):
            uses, problem = await opened.uses(common.table)
        if uses is not None and (apps := uses.get((opened.arn, consumer))):
            raise ConfigurationError(
                f"{what} is used by {_apps_text(apps)}: start these clients without "
                "it, or stop them, and wait five minutes if they crashed"
            )
        use = f"no live client in table {common.table} uses it"
        use = f"who uses it is unknown: {problem}" if problem else use
        text = f"{what}, registered {_age_text(found)} ago: {use}"
        click.echo(escape_unprintable(text), err=common.as_json)
        if not common.dry_run:
            common.confirm("Deregister it?")
            with progress(f"deregistering {consumer}"):
                await opened.consumers.deregister(consumer)
    text = f"{what}: deregistered"
    _print_change(common, opened.arn, found, text, deregistered=True)


def _check_name(consumer: str) -> None:
    if not CONSUMER_NAME.fullmatch(consumer):
        raise ConfigurationError(
            f"{consumer!r} isn't the name of a stream consumer: use 1 to 128 of a-z, "
            "A-Z, 0-9, _ . -"
        )


def _parse_tag(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ConfigurationError(f"--tag={text!r} must be KEY=VALUE")
    return key, value


def _print_change(
    common: CommonOptions,
    arn: str,
    consumer: StreamConsumer | None,
    text: str,
    **done: bool,
) -> None:
    if not common.as_json:
        click.echo("dry run: nothing was changed" if common.dry_run else text)
        return
    about = None if consumer is None else _report(consumer)
    done = {"dry_run": True} if common.dry_run else done
    print_json({"stream_arn": arn, "consumer": about, **done})


def _report(consumer: StreamConsumer) -> dict[str, Any]:
    return {
        "name": consumer.name,
        "arn": consumer.arn,
        "status": consumer.status,
        "created_at": timestamp_text(consumer.created_at),
    }


def _apps_text(apps: Mapping[str, int] | None) -> str:
    """Return the apps with the numbers of their clients."""
    if apps is None:
        return "unknown"
    used = sorted(apps.items())
    texts = [f"app {app} ({counted(count, 'client')})" for app, count in used]
    return ", ".join(texts) or "no live client"


def _age_text(consumer: StreamConsumer) -> str:
    return duration_text((time.time() - consumer.created_at) * 1000)
