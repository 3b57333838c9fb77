"""``kinesumer dlq``: list, show and put back dead letters."""

from __future__ import annotations

import asyncio
import json
import random
from base64 import b64encode
from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kinesumer.admin.arguments import parse_time
from kinesumer.cli import options
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from kinesumer.admin.connect import Roles
    from kinesumer.admin.redrive import Contents, Filter, RedriveResult, StoredLetter
    from kinesumer.aws.session import ClientFactory
    from kinesumer.cli.options import CommonOptions
    from kinesumer.dead_letters import DeadLetter
    from kinesumer.dead_letters.base import ReadableDeadLetters

MAX_ERROR_CHARACTERS = 100
"""A list shows at most this much of an error."""


@click.group()
def dlq() -> None:
    """List, show and put back dead letters.

    TARGET is file:PATH, sqs:QUEUE_URL, kinesis:STREAM or s3://BUCKET/PREFIX.
    """


def _filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--since",
            metavar="TIME",
            help="Failed at this time or later: 2026-01-31T12:00:00Z, or 2h, 3d ago.",
        ),
        click.option("--error", metavar="TEXT", help="The error contains this text."),
        click.option("--stream", help="From this stream: a name or an ARN."),
        click.option("--app", help="From this app."),
    ):
        command = option(command)
    return command


@dlq.command("list")
@click.argument("target")
@_filter_options
@options.region
@options.as_json
@options.pass_common
def list_(common: CommonOptions, /, target: str, **filters: str | None) -> None:
    """List letters in the order in which they failed.

    Listing an SQS queue hides its messages from other readers until the command ends.
    """
    contents = asyncio.run(_read(target, common.region, _filter(**filters)))
    if common.as_json:
        click.echo(json.dumps(_list_report(target, contents), indent=2))
        return
    for held in contents.letters:
        click.echo(_list_line(held))
    _print_unreadable(contents)
    click.echo(f"{len(contents.letters)} in {escape_unprintable(target)}")


@dlq.command()
@click.argument("target")
@click.argument("letter_id", metavar="ID")
@options.region
@options.as_json
@options.pass_common
def show(common: CommonOptions, target: str, letter_id: str) -> None:
    """Show a letter with its data and traceback."""
    contents = asyncio.run(_read(target, common.region, _filter()))
    [held] = _select(target, contents, (letter_id,))
    letter = held.letter
    if common.as_json:
        click.echo(json.dumps(_letter_report(letter), indent=2))
        return
    for name, value in _fields(letter).items():
        text = "-" if value is None else escape_unprintable(str(value))
        click.echo(f"{name:<20}{text}")
    click.echo(f"\n{_data_text(letter.data)}\n\n{_escape_lines(letter.traceback)}")


@dlq.command("redrive")
@click.argument("target")
@click.argument("ids", metavar="[ID…]", nargs=-1)
@click.option(
    "--all", "everything", is_flag=True, help="Every letter that matches the filters."
)
@_filter_options
@click.option(
    "--to-stream", help="Put the records into this stream, not into their own."
)
@options.yes
@options.roles
@options.region
@options.as_json
@options.pass_common
def redrive(
    common: CommonOptions,
    /,
    target: str,
    ids: tuple[str, ...],
    everything: bool,
    to_stream: str | None,
    **filters: str | None,
) -> None:
    """Put records back into their streams, and remove their letters from TARGET.

    A record keeps its partition key, and its explicit hash key if the letter has it.
    Every app that consumes the stream receives it. Delivery is at least once: after a
    crash a letter may remain whose record is back. The exit status is 1 if a letter
    remains.
    """
    if bool(ids) == everything:
        raise ConfigurationError("name the letters to put back, or pass --all")
    work = _redrive(common, common.roles(), target, ids, _filter(**filters), to_stream)
    if asyncio.run(work).failed:
        click.get_current_context().exit(1)


def _filter(
    app: str | None = None,
    stream: str | None = None,
    error: str | None = None,
    since: str | None = None,
) -> Filter:
    from kinesumer.admin.redrive import Filter

    failed_since = parse_time("--since", since, datetime.now(UTC)) if since else None
    return Filter(app, stream, error, failed_since)


@asynccontextmanager
async def _open(
    target: str, region: str | None
) -> AsyncIterator[tuple[ReadableDeadLetters, ClientFactory]]:
    from kinesumer.aws.session import ClientFactory
    from kinesumer.dead_letters.targets import open_readable

    async with ClientFactory(region=region) as clients:
        letters = await open_readable(target, clients)
        try:
            yield letters, clients
        finally:
            await letters.aclose()


async def _read(target: str, region: str | None, filter_: Filter) -> Contents:
    from kinesumer.admin.redrive import read_letters

    async with _open(target, region) as (letters, _):
        return await read_letters(letters.read(), filter_)


async def _redrive(
    common: CommonOptions,
    roles: Roles,
    target: str,
    ids: Sequence[str],
    filter_: Filter,
    to_stream: str | None,
) -> RedriveResult:
    from kinesumer.admin.redrive import Redrive, read_letters

    async with _open(target, common.region) as (letters, clients):
        contents = await read_letters(letters.read(), filter_)
        chosen = _select(target, contents, ids) if ids else contents.letters
        if chosen:
            streams = Counter(to_stream or held.letter.stream_arn for held in chosen)
            _print_plan(streams, target, removes=letters.removes)
            common.confirm("Put them back?")
        redrive = Redrive(
            clients, letters, chance=random.Random(), roles=roles, to_stream=to_stream
        )
        outcome = await redrive.run(chosen)
    _print_outcome(common, target, outcome, removes=letters.removes)
    return outcome


def _select(target: str, contents: Contents, ids: Sequence[str]) -> list[StoredLetter]:
    by_id = {held.letter.id: held for held in contents.letters}
    missing = [one for one in ids if one not in by_id]
    if missing:
        _print_unreadable(contents)
        raise KinesumerError(
            f"no letter {', '.join(missing)} in {target}; run `kinesumer dlq list` to "
            "list all letters"
        )
    return [by_id[one] for one in dict.fromkeys(ids)]


def _print_plan(streams: Counter[str], target: str, *, removes: bool) -> None:
    for name, count in streams.items():
        click.echo(f"{count} to stream {escape_unprintable(name)}", err=True)
    after = "removed from" if removes else "kept by Kinesis in"
    click.echo(f"then {after} {escape_unprintable(target)}", err=True)


def _fields(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter without its data and traceback."""
    fields: dict[str, Any] = {"id": letter.id, **msgspec.to_builtins(letter)}
    for name in ("version", "data", "traceback"):
        del fields[name]
    return {**fields, "data_bytes": len(letter.data)}


def _letter_report(letter: DeadLetter) -> dict[str, Any]:
    report = {
        "version": options.REPORT_VERSION,
        **_fields(letter),
        "traceback": letter.traceback,
    }
    try:
        return {**report, "data": letter.data.decode()}
    except UnicodeDecodeError:
        return {**report, "data_base64": b64encode(letter.data).decode()}


def _list_report(target: str, contents: Contents) -> dict[str, Any]:
    return {
        "version": options.REPORT_VERSION,
        "target": target,
        "letters": [
            {**_fields(held.letter), "copies": len(held.copies)}
            for held in contents.letters
        ],
        "unreadable": contents.unreadable,
    }


def _list_line(held: StoredLetter) -> str:
    letter = held.letter
    error = letter.error
    if len(error) > MAX_ERROR_CHARACTERS:
        error = f"{error[: MAX_ERROR_CHARACTERS - 1]}…"
    failed = letter.failed_at.astimezone(UTC).isoformat(timespec="seconds")
    source = f"{letter.app}  {letter.stream}/{letter.shard_id}"
    attempts = f"{letter.attempts} attempts"
    details = escape_unprintable(f"{source}  {attempts}  {error}")
    return f"{letter.id}  {failed[:19]}Z  {details}"


def _data_text(data: bytes) -> str:
    try:
        return _escape_lines(data.decode())
    except UnicodeDecodeError:
        return f"base64: {b64encode(data).decode()}"


def _escape_lines(text: str) -> str:
    """Return text with its line ends, and other control characters escaped."""
    return "\n".join(escape_unprintable(line) for line in text.splitlines())


def _print_unreadable(contents: Contents) -> None:
    for problem in contents.unreadable:
        click.echo(f"! unreadable: {escape_unprintable(problem)}", err=True)


def _print_outcome(
    common: CommonOptions, target: str, outcome: RedriveResult, *, removes: bool
) -> None:
    if common.as_json:
        report = {
            "version": options.REPORT_VERSION,
            "target": target,
            "put": [letter.id for letter in outcome.put],
            "removed": removes,
            "failed": [
                {"id": letter.id, "reason": reason} for letter, reason in outcome.failed
            ],
        }
        click.echo(json.dumps(report, indent=2))
        return
    for letter, reason in outcome.failed:
        click.echo(f"! {letter.id} stays: {escape_unprintable(reason)}", err=True)
    kept = "" if removes else "; Kinesis keeps their letters until they expire"
    click.echo(f"{len(outcome.put)} put back{kept}")
