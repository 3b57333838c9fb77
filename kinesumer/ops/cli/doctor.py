"""``kinesumer doctor`` and ``kinesumer verify``: checks that change nothing."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

import click
from rich.console import RenderableType

from kinesumer.errors import ConfigurationError
from kinesumer.ops.cli.console import (
    checkpoint_text,
    indented,
    marked,
    plain,
    print_json,
    print_lines,
    progress,
    stream_title,
)
from kinesumer.ops.cli.options import ROLES, CommonOptions, FiniteFloat, command
from kinesumer.ops.group.doctor import DoctorOptions, DoctorResult, run_checks
from kinesumer.ops.group.problems import Severity, worst
from kinesumer.ops.group.verify import StreamVerdicts, VerifyReport, verify_app
from kinesumer.runtime.text import counted, escape_unprintable
from kinesumer.wire.cbor import decoder

DOCTOR_STYLES = {"CRITICAL": "bold red", "WARNING": "yellow", "NOTE": "cyan"}
VERIFY_STYLES = {"critical": "bold red", "warning": "yellow", "note": ""}


@command("table", "region", "as_json", *ROLES)
@click.argument("streams", metavar="[STREAM…]", nargs=-1)
@click.option(
    "--app",
    envvar="KINESUMER_APP",
    show_envvar=True,
    help="The group to examine. Without it: only what every group needs.",
)
@click.option(
    "--interval",
    type=FiniteFloat(1.0),
    default=5.0,
    show_default=True,
    help="Seconds between two observations of the app: only lasting problems count.",
)
@click.option(
    "--probe",
    "probes",
    type=click.Choice(["put", "fan-out"]),
    multiple=True,
    help="Also try an action that has no effect only by Kinesis's DryRun: to put into "
    "the streams, or to subscribe to the consumers that the app's clients use. "
    "Repeatable.",
)
async def doctor(
    common: CommonOptions,
    streams: tuple[str, ...],
    app: str | None,
    interval: float,
    probes: tuple[str, ...],
) -> None:
    """Find problems, and say what to do about them. Changes nothing.

    Examines the app's streams and the streams named. The exit status is 0 if all is
    well, 3 with warnings, and 4 if records aren't read or are in danger. It is 1 if
    the command couldn't check.
    """
    if "fan-out" in probes and app is None:
        raise ConfigurationError("--probe=fan-out tries an app's consumers: give --app")
    settings = DoctorOptions(
        common.table, app, streams, common.roles(), interval, probes
    )
    async with common.clients() as clients:
        with progress("examining"):
            result = await run_checks(clients, settings)
    if common.as_json:
        print_json(_report(settings, result))
    else:
        _show_findings(settings, result)
    severity = worst(result.findings)
    # The exit status is the value of the worst severity. But if AWS answered no check,
    # only a critical finding counts, and otherwise the command has failed.
    is_checked = result.answered or severity is Severity.CRITICAL
    click.get_current_context().exit(severity if is_checked else 1)


def _report(settings: DoctorOptions, result: DoctorResult) -> dict[str, Any]:
    return {
        "app": settings.app,
        "table": settings.table,
        "caller": result.caller.arn if result.caller else None,
        "app_examined": result.examined,
        "checks": list(map(str, result.checks)),
        "decoder": decoder(),
        "worst": worst(result.findings).label if result.findings else None,
        "findings": [
            one._asdict() | {"check": str(one.check), "severity": one.severity.label}
            for one in result.findings
        ],
    }


def _show_findings(settings: DoctorOptions, result: DoctorResult) -> None:
    lines: list[RenderableType] = []
    for finding in result.findings:
        severity = finding.severity.name
        head = plain(severity, DOCTOR_STYLES[severity])
        subject = finding.subject
        if subject.startswith("arn:"):
            subject = f"stream {stream_title(subject)}"
        head.append(f"  {finding.check}: {escape_unprintable(subject)}", style="bold")
        lines += [head, indented(finding.text), indented(f"→ {finding.advice}"), ""]
    caller = result.caller.arn if result.caller else "an unknown caller"
    subject = f"app {settings.app} in table" if result.examined else "table"
    count = len(result.findings)
    total = counted(count, "finding") if count else "all is well"
    lines.append(plain(f"{subject} {settings.table}, as {caller}: {total}"))
    lines.append(plain(f"checked: {', '.join(result.checks)}"))
    lines.append(plain(f"decoder: {decoder()}"))
    if settings.app and not result.examined:
        lines.append(plain(f"not examined: app {settings.app}", "red"))
    print_lines(*lines)


@command("app", "table", "region", "as_json", "verbose", *ROLES)
async def verify(common: CommonOptions) -> None:
    """Check that each stored position still exists in its shard.

    Reads only, and may run beside working clients. The exit status is 0 if all is
    well, 3 with warnings, and 4 if records aren't read or are lost. It is 1 if the
    command couldn't check.
    """
    about = common.app, common.table, common.roles()
    async with common.connect() as (clients, store):
        with progress("looking positions up"):
            report = await verify_app(*about, clients, store)
    if common.as_json:
        print_json(report)
    else:
        _show_verdicts(report, verbose=common.verbose)
    click.get_current_context().exit(Severity[report.worst.upper()])


def _show_verdicts(report: VerifyReport, *, verbose: bool) -> None:
    streams = (_stream_verdicts(one, verbose=verbose) for one in report.streams)
    total = "all is well" if report.worst == "note" else f"worst: {report.worst}"
    title = plain(f"app {report.app} in table {report.table}: {total}")
    print_lines(*chain(*streams, marked(report.problems)), title, wide=verbose)


def _stream_verdicts(stream: StreamVerdicts, *, verbose: bool) -> list[RenderableType]:
    counts = Counter(shard.verdict for shard in stream.shards)
    text = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    title = f"{stream_title(stream.stream_arn)}: {text or 'not compared'}"
    lines: list[RenderableType] = [plain(title, "bold")]
    if stream.problem:
        lines.append(indented(stream.problem, VERIFY_STYLES[stream.severity]))
    for shard in stream.shards:
        if shard.text:
            number, sub = shard.sequence_number, shard.sub_sequence_number
            position = checkpoint_text(number, sub) or "its start"
            at = f" at {position}" if verbose else ""
            text = f"{shard.shard_id}{at}: {shard.verdict}: {shard.text}"
            lines.append(indented(text, VERIFY_STYLES[shard.severity]))
    lines += [
        indented(f"{one.shard_id} {one.text}", VERIFY_STYLES[one.severity])
        for one in stream.contradictions
    ]
    return lines
