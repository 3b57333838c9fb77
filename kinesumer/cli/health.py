"""``kinesumer health``: what a probe runs beside a client."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click

from kinesumer.cli import options
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from kinesumer.admin.health import ClientHealth

UNHEALTHY = 1
WORDS = {True: "alive", False: "dead", None: "unknown"}


@click.command()
@options.app
@click.option(
    "--client-id",
    envvar="KINESUMER_CLIENT_ID",
    required=True,
    show_envvar=True,
    help="The client to look at.",
)
@options.table
@options.region
@click.option(
    "--ready", is_flag=True, help="Succeed only if it takes part in the group, too."
)
@options.as_json
@click.pass_context
def health(
    context: click.Context,
    app: str,
    client_id: str,
    table: str,
    region: str | None,
    ready: bool,
    as_json: bool,
) -> None:
    """Tell by its exit status whether one client is alive: 0 if it is, else 1.

    Reads the client's row, waits for a heartbeat, reads it again: about two seconds. A
    client without a heartbeat is watched for its lease first. While the state store
    doesn't answer the client counts as alive, but not as ready: to restart it would
    help nobody.

    With --json prints {"app", "client_id", "alive", "ready", "state", "why"}; "alive"
    is null if the state store didn't answer.
    """
    finding = asyncio.run(_examine(app, client_id, table, region))
    if as_json:
        click.echo(json.dumps(finding.report(app, client_id)))
    else:
        click.echo(_text(finding, app, client_id))
    if not (finding.ready if ready else finding.alive is not False):
        context.exit(UNHEALTHY)


async def _examine(
    app: str, client_id: str, table: str, region: str | None
) -> ClientHealth:
    # Not `reached()`: to verify the table is one request more for each probe.
    from kinesumer.admin.health import check_client
    from kinesumer.aws.dynamodb import open_store
    from kinesumer.aws.session import ClientFactory
    from kinesumer.runtime.clock import SystemClock

    async with ClientFactory(region=region) as clients:
        store = await open_store(clients, table)
        return await check_client(store, SystemClock(), app, client_id)


def _text(finding: ClientHealth, app: str, client_id: str) -> str:
    word = WORDS[finding.alive]
    if finding.alive:
        word += ", ready" if finding.ready else f", not ready ({finding.state})"
    return escape_unprintable(f"{client_id} of {app}: {word}: {finding.why}")
