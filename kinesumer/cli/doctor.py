"""``kinesumer doctor`` and ``kinesumer verify``: checks that change nothing."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from kinesumer.cli import options
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from rich.text import Text

    from kinesumer.admin.doctor.runner import DoctorOptions, DoctorResult
    from kinesumer.admin.verify import Verification
    from kinesumer.cli.options import CommonOptions

COULD_NOT_CHECK = 1
DOCTOR_STYLES = {"CRITICAL": "bold red", "WARNING": "yellow", "NOTE": "cyan"}
VERIFY_STYLES = {"critical": "bold red", "warning": "yellow", "note": ""}


@click.command()
@click.argument("streams", metavar="[STREAM…]", nargs=-1)
@click.option(
    "--app",
    envvar="KINESUMER_APP",
    show_envvar=True,
    help="The group to examine. Without it: only what every group needs.",
)
@options.table
@options.region
@options.as_json
@click.option(
    "--interval",
    type=options.FiniteFloat(1.0),
    default=10.0,
    show_default=True,
    help="Seconds between two observations of the app: only lasting problems count.",
)
@options.roles
@options.pass_common
def doctor(
    common: CommonOptions, streams: tuple[str, ...], app: str | None, interval: float
) -> None:
    """Find problems, and say what to do about them. Changes nothing.

    Examines the app's streams and the streams named. The exit status is 0 if all is
    well, 3 with warnings, and 4 if records aren't read or are in danger. It is 1 if
    the command couldn't check.
    """
    from kinesumer.admin.doctor.runner import DoctorOptions

    settings = DoctorOptions(common.table, app, streams, common.roles(), interval)
    result = asyncio.run(_examine(settings, common.region))
    if common.as_json:
        click.echo(json.dumps(_report(settings, result), indent=2))
    else:
        _show_findings(settings, result)
    click.get_current_context().exit(_exit_status(result))


async def _examine(settings: DoctorOptions, region: str | None) -> DoctorResult:
    from kinesumer.admin.doctor.runner import run_checks
    from kinesumer.aws.session import ClientFactory

    async with ClientFactory(region=region) as clients:
        return await run_checks(clients, settings)


def _exit_status(result: DoctorResult) -> int:
    """Return the exit status. A check without any answer is a failure, no warning."""
    from kinesumer.admin.doctor.finding import Severity, worst

    severity = worst(result.findings)
    if result.answered or severity is Severity.CRITICAL:
        return severity
    return COULD_NOT_CHECK


def _report(settings: DoctorOptions, result: DoctorResult) -> dict[str, Any]:
    from kinesumer.admin.doctor.finding import worst

    return {
        "version": options.REPORT_VERSION,
        "app": settings.app,
        "table": settings.table,
        "caller": result.caller.arn if result.caller else None,
        "app_examined": result.examined,
        "checks": list(result.checks),
        "worst": worst(result.findings).name.lower() if result.findings else None,
        "findings": [
            finding._asdict() | {"severity": finding.severity.name.lower()}
            for finding in result.findings
        ],
    }


def _show_findings(settings: DoctorOptions, result: DoctorResult) -> None:
    from rich.console import Group

    from kinesumer.cli.report_tables import console, plain

    lines: list[Text] = []
    for finding in result.findings:
        severity = finding.severity.name
        head = plain(severity, DOCTOR_STYLES[severity])
        head.append(
            f"  {finding.check}: {escape_unprintable(finding.subject)}", style="bold"
        )
        lines += [
            head,
            plain(f"  {finding.text}"),
            plain(f"  → {finding.advice}"),
            plain(""),
        ]
    caller = f"as {result.caller.arn}" if result.caller else "as an unknown caller"
    subject = f"app {settings.app} in table" if result.examined else "table"
    count = len(result.findings)
    total = f"{count} finding{'' if count == 1 else 's'}" if count else "all is well"
    lines.append(plain(f"{subject} {settings.table}, {caller}: {total}"))
    lines.append(plain(f"checked: {', '.join(result.checks)}"))
    if settings.app and not result.examined:
        lines.append(plain(f"not examined: app {settings.app}", "red"))
    console().print(Group(*lines))


@click.command()
@options.app
@options.table
@options.region
@options.as_json
@options.roles
@options.pass_common
def verify(common: CommonOptions) -> None:
    """Check that each stored position still exists in its shard.

    Reads only, and may run beside working clients. The exit status is 0 if all is
    well, 3 with warnings, and 4 if records aren't read or are lost. It is 1 if the
    command couldn't check.
    """
    from kinesumer.admin.doctor.finding import Severity
    from kinesumer.admin.verify import Verification

    verification = Verification(common.app, common.table, common.roles())
    report = asyncio.run(_verify(common, verification))
    if common.as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        _show_verdicts(report)
    click.get_current_context().exit(Severity[report["worst"].upper()])


async def _verify(common: CommonOptions, verification: Verification) -> dict[str, Any]:
    async with common.connect() as (clients, store):
        return await verification.run(clients, store)


def _show_verdicts(report: dict[str, Any]) -> None:
    from rich.console import Group

    from kinesumer.cli.report_tables import console, plain

    lines: list[Text] = []
    for stream in report["streams"]:
        lines += _stream_verdicts(stream)
    lines += [plain(f"! {text}", "red") for text in report["problems"]]
    worst = report["worst"]
    total = "all is well" if worst == "note" else f"worst: {worst}"
    lines.append(plain(f"app {report['app']} in table {report['table']}: {total}"))
    console().print(Group(*lines))


def _stream_verdicts(stream: dict[str, Any]) -> list[Text]:
    from kinesumer.cli.report_tables import plain, position_text

    counts = Counter(shard["verdict"] for shard in stream["shards"])
    text = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    lines = [plain(f"{stream['stream_arn']}: {text or 'not compared'}", "bold")]
    if stream["problem"]:
        style = VERIFY_STYLES[stream["severity"]]
        lines.append(plain(f"  {stream['problem']}", style))
    lines += [
        plain(
            f"  {shard['shard_id']} at {position_text(shard, 'its start')}: "
            f"{shard['verdict']}: {shard['text']}",
            VERIFY_STYLES[shard["severity"]],
        )
        for shard in stream["shards"]
        if shard["text"]
    ]
    lines += [
        plain(f"  {one['shard_id']} {one['text']}", VERIFY_STYLES[one["severity"]])
        for one in stream["contradictions"]
    ]
    return lines
