"""``kinesumer import``: positions of a file, or of another consumer's table."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, BinaryIO

import click

from kinesumer.cli import options
from kinesumer.cli.default_command import UnnamedCommand
from kinesumer.cli.import_plan import Wanted, opening, take_over
from kinesumer.cli.kcl import import_kcl

if TYPE_CHECKING:
    from kinesumer.aws.session import ClientFactory
    from kinesumer.migration.takeover import ImportPlan
    from kinesumer.runtime.context import ClientContext


@click.group(
    "import",
    cls=UnnamedCommand,
    unnamed="file",
    subcommand_metavar="FILE | kcl TABLE",
)
def import_() -> None:
    """Give an app the positions of a file, or of a KCL fleet.

    \b
    kinesumer import FILE --app APP         what `kinesumer export` wrote, - for stdin
    kinesumer import kcl TABLE --app APP    the lease table of a KCL fleet
    """


@import_.command("file", hidden=True)
@click.argument("file", type=click.File("rb"))
@options.app
@options.table
@options.region
@options.streams
@options.roles
@options.external_id
@options.dry_run
@options.yes
@options.as_json
def file(
    file: BinaryIO,
    app: str,
    table: str,
    region: str | None,
    stream: tuple[str, ...],
    role: tuple[str, ...],
    external_id: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Give an app the positions that `kinesumer export` wrote.

    Its clients must be stopped. Each position is looked up in the stream first; what
    will change is shown, and asked for.
    """
    from kinesumer.admin.connect import parse_roles
    from kinesumer.migration import positions
    from kinesumer.migration.takeover import narrowed, of_file

    roles = parse_roles(role, external_id)
    content = file.read(positions.MAX_FILE_BYTES + 1)
    found = narrowed(stream, positions.decode(content))

    async def drafting(context: ClientContext, clients: ClientFactory) -> ImportPlan:
        return await of_file(context, file.name, found, opening(clients, roles))

    wanted = Wanted(app, table, region, dry_run, yes, as_json)
    asyncio.run(take_over(wanted, drafting))


import_.add_command(import_kcl)
