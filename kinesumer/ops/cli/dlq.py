"""``kinesumer dlq``: list, show and put back dead letters."""

from __future__ import annotations

import random
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import click

from kinesumer.aws.session import ClientFactory
from kinesumer.errors import ConfigurationError
from kinesumer.handlers.dead_letters.letter import (
    DeadLetter,
    LetterWithoutData,
    ReadableDeadLetters,
)
from kinesumer.handlers.dead_letters.targets import open_readable
from kinesumer.model.incidents import MAX_ERROR_LETTERS
from kinesumer.model.times import parse_time, time_text
from kinesumer.ops.cli.console import escape_lines, print_json, progress
from kinesumer.ops.cli.options import ROLES, CommonOptions, command
from kinesumer.ops.cli.record_output import data_fields
from kinesumer.ops.group.redrive import (
    Contents,
    Filter,
    Redrive,
    RedriveResult,
    StoredLetter,
    letter_fields,
    read_letters,
)
from kinesumer.runtime.text import counted, escape_unprintable, shorten


@click.group()
def dlq() -> None:
    """List, show and put back dead letters.

    TARGET is file:PATH, sqs:QUEUE_URL, kinesis:STREAM or s3://BUCKET/PREFIX.
    """


def _filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
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
        function = option(function)
    return function


def _filter(*, since: str | None, **texts: str | None) -> Filter:
    failed_since = parse_time("--since", since, datetime.now(UTC)) if since else None
    return Filter(since=failed_since, **texts)


@asynccontextmanager
async def _open(
    common: CommonOptions, target: str
) -> AsyncIterator[tuple[ReadableDeadLetters, ClientFactory]]:
    async with common.clients() as clients:
        async with aclosing(await open_readable(target, clients)) as letters:
            yield letters, clients


async def _read(stored: ReadableDeadLetters, filter_: Filter) -> Contents:
    with progress("reading dead letters"):
        contents = await read_letters(stored.read(), filter_)
    for problem in contents.unreadable:
        click.echo(f"! unreadable: {escape_unprintable(problem)}", err=True)
    return contents


@command("region", "as_json", name="list", group=dlq)
@click.argument("target")
@_filter_options
async def list_(common: CommonOptions, target: str, **filters: str | None) -> None:
    """List letters in the order in which they failed.

    Listing an SQS queue hides its messages from other readers until the command ends.
    """
    filter_ = _filter(**filters)
    async with _open(common, target) as (stored, _):
        contents = await _read(stored, filter_)
    if common.as_json:
        report = {
            "target": target,
            "letters": [held.report() for held in contents.letters],
            "unreadable": contents.unreadable,
        }
        print_json(report)
        return
    for held in contents.letters:
        click.echo(_list_line(held))
    click.echo(f"{len(contents.letters)} in {escape_unprintable(target)}")


@command("region", "as_json", group=dlq)
@click.argument("target")
@click.argument("letter_id", metavar="ID")
async def show(common: CommonOptions, target: str, letter_id: str) -> None:
    """Show a letter with its data and traceback."""
    async with _open(common, target) as (stored, _):
        contents = await _read(stored, Filter())
    [held] = contents.select([letter_id])
    letter = held.letter
    if common.as_json:
        print_json(_letter_report(letter))
        return
    for name, value in letter_fields(letter).items():
        text = "-" if value is None else escape_unprintable(str(value))
        click.echo(f"{name:<20}{text}")
    click.echo(f"\n{_data_text(letter)}\n\n{escape_lines(letter.traceback)}")


@command("yes", *ROLES, "region", "as_json", group=dlq)
@click.argument("target")
@click.argument("ids", metavar="[ID…]", nargs=-1)
@click.option(
    "--all", "everything", is_flag=True, help="Every letter that matches the filters."
)
@_filter_options
@click.option(
    "--to-stream", help="Put the records into this stream, not into their own."
)
async def redrive(
    common: CommonOptions,
    target: str,
    ids: tuple[str, ...],
    everything: bool,
    to_stream: str | None,
    **filters: str | None,
) -> None:
    """Put records back into their streams, and remove their letters from TARGET.

    A record keeps its partition key, and its explicit hash key if the letter has it.
    Every app that consumes the stream receives it. Delivery is at least once: after a
    crash, a letter may remain although its record was put back. The exit status is 1
    if a letter remains.
    """
    if bool(ids) == everything:
        raise ConfigurationError("name the letters to put back, or pass --all")
    filter_, roles, chance = _filter(**filters), common.roles(), random.Random()
    async with _open(common, target) as (stored, clients):
        contents = await _read(stored, filter_)
        # An unknown ID fails here, before the first record is put back.
        chosen = contents.select(ids) if ids else contents.letters
        if chosen:
            streams = Counter(to_stream or held.letter.stream_arn for held in chosen)
            for name, count in streams.items():
                click.echo(f"{count} to stream {escape_unprintable(name)}", err=True)
            # A stream can't delete records, so its dead letters stay until they expire.
            after = "removed from" if stored.removes else "kept by Kinesis in"
            click.echo(f"then {after} {escape_unprintable(target)}", err=True)
            common.confirm("Put them back?")
        redrive = Redrive(
            clients, stored, chance=chance, roles=roles, to_stream=to_stream
        )
        with progress("putting records back"):
            outcome = await redrive.run(chosen)
    _print_outcome(common, target, outcome, removes=stored.removes)
    if outcome.failed:
        click.get_current_context().exit(1)


def _letter_report(letter: DeadLetter) -> dict[str, Any]:
    report = {**letter_fields(letter), "traceback": letter.traceback}
    if isinstance(letter, LetterWithoutData):
        return {**report, "data": None}
    return report | data_fields(letter.data)


def _list_line(held: StoredLetter) -> str:
    letter = held.letter
    failed = time_text(letter.failed_at.timestamp())
    source = f"{letter.app}  {letter.stream}/{letter.shard_id}"
    attempts = counted(letter.attempts, "attempt")
    details = f"{source}  {attempts}  {shorten(letter.error, MAX_ERROR_LETTERS)}"
    return f"{letter.id}  {failed}  {escape_unprintable(details)}"


def _data_text(letter: DeadLetter) -> str:
    if isinstance(letter, LetterWithoutData):
        return "The data was too large for the target. The stream has it, see above."
    try:
        return escape_lines(letter.data.decode())
    except UnicodeDecodeError:
        return f"base64: {b64encode(letter.data).decode()}"


def _print_outcome(
    common: CommonOptions, target: str, outcome: RedriveResult, *, removes: bool
) -> None:
    if common.as_json:
        report = {
            "target": target,
            "put": [letter.id for letter in outcome.put],
            "removed": removes,
            "failed": [{"id": one.id, "reason": why} for one, why in outcome.failed],
        }
        print_json(report)
        return
    for letter, reason in outcome.failed:
        click.echo(f"! {letter.id} stays: {escape_unprintable(reason)}", err=True)
    kept = "" if removes else "; Kinesis keeps their letters until they expire"
    click.echo(f"{len(outcome.put)} put back{kept}")
