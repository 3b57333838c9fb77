"""``kinesumer verify``."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from kinesumer.cli import options

if TYPE_CHECKING:
    from rich.text import Text

    from kinesumer.admin.verify import Verification


@click.command()
@options.app
@options.table
@options.region
@options.as_json
@options.roles
@options.external_id
def verify(
    app: str,
    table: str,
    region: str | None,
    as_json: bool,
    role: tuple[str, ...],
    external_id: str | None,
) -> None:
    """Compare stored positions with the stream: is each one still in its shard?

    It reads only, also beside clients that work. The exit status is 0 if all is well,
    3 with warnings, 4 if records aren't read or are lost; 1 if it couldn't look.
    """
    from kinesumer.admin.connect import parse_roles
    from kinesumer.admin.doctor.finding import Severity
    from kinesumer.admin.verify import Verification

    verification = Verification(app, table, parse_roles(role, external_id))
    told = asyncio.run(_verify(verification, table, region))
    if as_json:
        click.echo(json.dumps(told, indent=2))
    else:
        _tell(told)
    click.get_current_context().exit(Severity[told["worst"].upper()])


async def _verify(
    verification: Verification, table: str, region: str | None
) -> dict[str, Any]:
    from kinesumer.admin.connect import connect

    async with connect(table, region) as (clients, store):
        return await verification.run(clients, store)


STYLES = {"critical": "bold red", "warning": "yellow", "note": ""}


def _tell(told: dict[str, Any]) -> None:
    from rich.console import Group

    from kinesumer.cli.console import console, plain

    lines: list[Text] = []
    for stream in told["streams"]:
        counts = Counter(shard["verdict"] for shard in stream["shards"])
        what = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        lines.append(plain(f"{stream['stream_arn']}: {what or 'not compared'}", "bold"))
        if stream["problem"]:
            lines.append(plain(f"  {stream['problem']}", STYLES[stream["severity"]]))
        lines += [
            plain(
                f"  {shard['shard_id']} at {_position(shard)}: {shard['verdict']}: "
                f"{shard['text']}",
                STYLES[shard["severity"]],
            )
            for shard in stream["shards"]
            if shard["text"]
        ]
        lines += [
            plain(f"  {one['shard_id']} {one['text']}", STYLES[one["severity"]])
            for one in stream["contradictions"]
        ]
    lines += [plain(f"! {text}", "red") for text in told["problems"]]
    worst = "all is well" if told["worst"] == "note" else f"worst: {told['worst']}"
    lines.append(plain(f"app {told['app']} in table {told['table']}: {worst}"))
    console().print(Group(*lines))


def _position(shard: dict[str, Any]) -> str:
    number, part = shard["sequence_number"], shard["sub_sequence_number"]
    if number is None:
        return "its start"
    return number if part is None else f"{number}/{part}"
