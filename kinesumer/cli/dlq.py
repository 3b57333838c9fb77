"""``kinesumer dlq``: dead letters listed, shown, and put back."""

from __future__ import annotations

import asyncio
import json
import random
from base64 import b64encode
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from kinesumer.admin.arguments import parse_time
from kinesumer.cli import options
from kinesumer.cli.confirm import agreed
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesumer.admin.connect import Roles
    from kinesumer.admin.redrive import Contents, Filter, RedriveResult, StoredLetter
    from kinesumer.dead_letters import DeadLetter
    from kinesumer.dead_letters.targets import ReadableDeadLetters

VERSION = 1
LONGEST_LINE = 100
"""Characters of an error in a list."""


class Wanted(NamedTuple):
    """What is to be put back, and how."""

    target: str
    region: str | None
    ids: tuple[str, ...]
    filter: Filter
    to_stream: str | None
    roles: Roles
    as_json: bool
    yes: bool


@click.group()
def dlq() -> None:
    """List, show and put back dead letters.

    TARGET is file:PATH, sqs:QUEUE_URL, kinesis:STREAM or s3://BUCKET/PREFIX.
    """


def _filters(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--since",
            metavar="TIME",
            help="Failed then or later: 2026-01-31T12:00:00Z, or 90m, 2h, 3d ago.",
        ),
        click.option("--error", metavar="TEXT", help="With this in the error."),
        click.option("--stream", help="Of this stream: a name or an ARN."),
        click.option("--app", help="Of this app."),
    ):
        command = option(command)
    return command


@dlq.command("list")
@click.argument("target")
@_filters
@options.region
@options.as_json
def list_(
    target: str,
    app: str | None,
    stream: str | None,
    error: str | None,
    since: str | None,
    region: str | None,
    as_json: bool,
) -> None:
    """List letters in the order in which they failed.

    Reading an SQS queue hides its messages from others until the command ends.
    """
    found = asyncio.run(_look(target, region, _filter(app, stream, error, since)))
    if as_json:
        click.echo(json.dumps(_listing(target, found), indent=2))
        return
    for held in found.letters:
        click.echo(_line(held))
    _tell_unreadable(found)
    click.echo(f"{len(found.letters)} in {escape_unprintable(target)}")


@dlq.command()
@click.argument("target")
@click.argument("letter_id", metavar="ID")
@options.region
@options.as_json
def show(target: str, letter_id: str, region: str | None, as_json: bool) -> None:
    """Show a letter with its data and traceback."""
    found = asyncio.run(_look(target, region, _filter(None, None, None, None)))
    [held] = _chosen(target, found, (letter_id,))
    if as_json:
        click.echo(json.dumps(_whole(held.letter), indent=2))
        return
    for name, value in _fields(held.letter).items():
        text = "-" if value is None else escape_unprintable(str(value))
        click.echo(f"{name:<20}{text}")
    click.echo(f"\n{_data(held.letter.data)}\n\n{_lines(held.letter.traceback)}")


@dlq.command("redrive")
@click.argument("target")
@click.argument("ids", metavar="[ID…]", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that the filters let by.")
@_filters
@click.option("--to-stream", help="Put them there, not where they came from.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@options.roles
@options.external_id
@options.region
@options.as_json
def redrive(
    target: str,
    ids: tuple[str, ...],
    everything: bool,
    app: str | None,
    stream: str | None,
    error: str | None,
    since: str | None,
    to_stream: str | None,
    yes: bool,
    role: tuple[str, ...],
    external_id: str | None,
    region: str | None,
    as_json: bool,
) -> None:
    """Put records back into their streams, and take their letters out of TARGET.

    With the same partition key, and the explicit hash key as far as it is known. Every
    app that consumes the stream gets them. At least once: a crash between the two
    leaves a letter whose record is back. The exit status is 1 if one stays.
    """
    from kinesumer.admin.connect import parse_roles

    if bool(ids) == everything:
        raise ConfigurationError("name the letters to put back, or say --all")
    wanted = Wanted(
        target,
        region,
        ids,
        _filter(app, stream, error, since),
        to_stream,
        parse_roles(role, external_id),
        as_json,
        yes,
    )
    if asyncio.run(_redrive(wanted)).failed:
        click.get_current_context().exit(1)


def _filter(
    app: str | None, stream: str | None, error: str | None, since: str | None
) -> Filter:
    from kinesumer.admin.redrive import Filter

    return Filter(
        app,
        stream,
        error,
        parse_time("--since", since, datetime.now(UTC)) if since else None,
    )


async def _look(target: str, region: str | None, wanted: Filter) -> Contents:
    from kinesumer.admin.redrive import read_letters
    from kinesumer.aws.session import ClientFactory
    from kinesumer.dead_letters.targets import open_readable

    async with ClientFactory(region=region) as clients:
        letters = await open_readable(target, clients)
        try:
            return await read_letters(letters.read(), wanted)
        finally:
            await letters.aclose()


async def _redrive(wanted: Wanted) -> RedriveResult:
    from kinesumer.admin.redrive import Redrive, read_letters
    from kinesumer.aws.session import ClientFactory
    from kinesumer.dead_letters.targets import open_readable

    async with ClientFactory(region=wanted.region) as clients:
        target = await open_readable(wanted.target, clients)
        try:
            found = await read_letters(target.read(), wanted.filter)
            letters = found.letters
            if wanted.ids:
                letters = _chosen(wanted.target, found, wanted.ids)
            if letters:
                _ask(wanted, letters, target)
            work = Redrive(
                clients,
                target,
                chance=random.Random(),
                roles=wanted.roles,
                to_stream=wanted.to_stream,
            )
            outcome = await work.run(letters)
        finally:
            await target.aclose()
    _tell(wanted, outcome, target)
    return outcome


def _chosen(target: str, found: Contents, ids: Sequence[str]) -> list[StoredLetter]:
    by_id = {held.letter.id: held for held in found.letters}
    missing = [one for one in ids if one not in by_id]
    if missing:
        _tell_unreadable(found)
        raise KinesumerError(
            f"no letter {', '.join(missing)} in {target}; kinesumer dlq list shows all"
        )
    return [by_id[one] for one in dict.fromkeys(ids)]


def _ask(
    wanted: Wanted, letters: Sequence[StoredLetter], target: ReadableDeadLetters
) -> None:
    """Say what will change, and ask. Raises ConfigurationError if nobody can answer."""
    streams = Counter(wanted.to_stream or held.letter.stream_arn for held in letters)
    for name, count in streams.items():
        click.echo(f"{count} to stream {escape_unprintable(name)}", err=True)
    after = "taken out of" if target.removes else "kept by Kinesis in"
    click.echo(f"then {after} {escape_unprintable(wanted.target)}", err=True)
    agreed("Put them back?", yes=wanted.yes)


# --- what is told --------------------------------------------------------------------


def _fields(letter: DeadLetter) -> dict[str, Any]:
    """Return all but data and traceback."""
    fields: dict[str, Any] = {"id": letter.id, **msgspec.to_builtins(letter)}
    for name in ("version", "data", "traceback"):
        del fields[name]
    return {**fields, "data_bytes": len(letter.data)}


def _whole(letter: DeadLetter) -> dict[str, Any]:
    whole = {"version": VERSION, **_fields(letter), "traceback": letter.traceback}
    try:
        return {**whole, "data": letter.data.decode()}
    except UnicodeDecodeError:
        return {**whole, "data_base64": b64encode(letter.data).decode()}


def _listing(target: str, found: Contents) -> dict[str, Any]:
    return {
        "version": VERSION,
        "target": target,
        "letters": [
            {**_fields(held.letter), "copies": len(held.copies)}
            for held in found.letters
        ],
        "unreadable": found.unreadable,
    }


def _line(held: StoredLetter) -> str:
    letter = held.letter
    error = letter.error
    if len(error) > LONGEST_LINE:
        error = f"{error[: LONGEST_LINE - 1]}…"
    failed = letter.failed_at.astimezone(UTC).isoformat(timespec="seconds")
    place = f"{letter.app}  {letter.stream}/{letter.shard_id}"
    attempts = f"{letter.attempts} attempts"
    details = escape_unprintable(f"{place}  {attempts}  {error}")
    return f"{letter.id}  {failed[:19]}Z  {details}"


def _data(data: bytes) -> str:
    try:
        return _lines(data.decode())
    except UnicodeDecodeError:
        return f"base64: {b64encode(data).decode()}"


def _lines(text: str) -> str:
    """Return text whose lines may be printed: other controls are escaped."""
    return "\n".join(escape_unprintable(line) for line in text.splitlines())


def _tell_unreadable(found: Contents) -> None:
    for problem in found.unreadable:
        click.echo(f"! unreadable: {escape_unprintable(problem)}", err=True)


def _tell(wanted: Wanted, outcome: RedriveResult, target: ReadableDeadLetters) -> None:
    if wanted.as_json:
        told = {
            "version": VERSION,
            "target": wanted.target,
            "put": [letter.id for letter in outcome.put],
            "removed": target.removes,
            "failed": [
                {"id": letter.id, "reason": reason} for letter, reason in outcome.failed
            ],
        }
        click.echo(json.dumps(told, indent=2))
        return
    for letter, reason in outcome.failed:
        click.echo(f"! {letter.id} stays: {escape_unprintable(reason)}", err=True)
    left = "" if target.removes else "; Kinesis keeps their letters until they expire"
    click.echo(f"{len(outcome.put)} put back{left}")
