"""``kinesumer doctor``."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from kinesumer.cli import options
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from kinesumer.admin.doctor.runner import DoctorOptions, DoctorResult

VERSION = 1
COULDNT_LOOK = 1


@click.command()
@click.argument("streams", metavar="[STREAM…]", nargs=-1)
@click.option(
    "--app",
    envvar="KINESUMER_APP",
    show_envvar=True,
    help="The group to examine; without one, only what every group needs is.",
)
@options.table
@options.region
@options.as_json
@click.option(
    "--interval",
    type=options.Real(1.0),
    default=10.0,
    show_default=True,
    help="Seconds between two looks at the app: what lasts is told of.",
)
@options.roles
@options.external_id
def doctor(
    streams: tuple[str, ...],
    app: str | None,
    table: str,
    region: str | None,
    as_json: bool,
    interval: float,
    role: tuple[str, ...],
    external_id: str | None,
) -> None:
    """Look for what is wrong, and say what to do: it changes nothing.

    Examines an app's streams and those named. The exit status is 0 if all is well, 3
    with warnings, 4 if records aren't read or are in danger; 1 if it couldn't look.
    """
    from kinesumer.admin.connect import parse_roles
    from kinesumer.admin.doctor.runner import DoctorOptions

    roles = parse_roles(role, external_id)
    wanted = DoctorOptions(table, app, streams, roles, interval)
    result = asyncio.run(_examine(wanted, region))
    if as_json:
        click.echo(json.dumps(_report(wanted, result), indent=2))
    else:
        _tell(wanted, result)
    click.get_current_context().exit(_status(result))


async def _examine(wanted: DoctorOptions, region: str | None) -> DoctorResult:
    from kinesumer.admin.doctor.runner import run_checks
    from kinesumer.aws.session import ClientFactory

    async with ClientFactory(region=region) as clients:
        return await run_checks(clients, wanted)


def _status(result: DoctorResult) -> int:
    """Return the exit status: that nothing could be looked at isn't a mere warning."""
    from kinesumer.admin.doctor.finding import Severity, worst

    found = worst(result.findings)
    return found if result.answered or found is Severity.CRITICAL else COULDNT_LOOK


def _report(wanted: DoctorOptions, result: DoctorResult) -> dict[str, Any]:
    from kinesumer.admin.doctor.finding import worst

    return {
        "version": VERSION,
        "app": wanted.app,
        "table": wanted.table,
        "caller": result.caller.arn if result.caller else None,
        "app_examined": result.examined,
        "checks": list(result.checks),
        "worst": worst(result.findings).name.lower() if result.findings else None,
        "findings": [
            finding._asdict() | {"severity": finding.severity.name.lower()}
            for finding in result.findings
        ],
    }


STYLES = {"CRITICAL": "bold red", "WARNING": "yellow", "NOTE": "cyan"}


def _tell(wanted: DoctorOptions, result: DoctorResult) -> None:
    from rich.console import Group

    from kinesumer.cli.console import console, plain

    parts = []
    for finding in result.findings:
        head = plain(f"{finding.severity.name}", STYLES[finding.severity.name])
        head.append(
            f"  {finding.check}: {escape_unprintable(finding.subject)}", style="bold"
        )
        parts += [
            head,
            plain(f"  {finding.text}"),
            plain(f"  → {finding.advice}"),
            plain(""),
        ]
    who = f"as {result.caller.arn}" if result.caller else "its caller unknown"
    of = f"app {wanted.app} in table" if result.examined else "table"
    count = len(result.findings)
    told = f"{count} findings" if count != 1 else "1 finding"
    parts.append(
        plain(f"{of} {wanted.table}, {who}: {told if count else 'all is well'}")
    )
    parts.append(plain(f"checked: {', '.join(result.checks)}"))
    if wanted.app and not result.examined:
        parts.append(plain(f"not examined: app {wanted.app}", "red"))
    console().print(Group(*parts))
