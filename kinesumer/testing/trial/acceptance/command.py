"""The command ``kinesumer acceptance``."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from kinesumer.errors import ConfigurationError
from kinesumer.ops.cli.options import CommonOptions, command
from kinesumer.runtime.stop_signals import SIGNALS
from kinesumer.runtime.text import escape_unprintable
from kinesumer.testing.trial.acceptance.account import (
    Account,
    RunNames,
    find_leftovers,
    open_account,
)
from kinesumer.testing.trial.acceptance.account import policy as policy_document
from kinesumer.testing.trial.acceptance.check import Report, masked
from kinesumer.testing.trial.acceptance.run import Options, Run, plan


@command("region", "external_id", "yes")
@click.option(
    "--role-arn", metavar="ARN", help="A role of another account, to check that, too."
)
@click.option("--fan-out", is_flag=True, help="Check enhanced fan-out, too.")
@click.option(
    "--tables", is_flag=True, help="Check the streams of DynamoDB tables, too."
)
@click.option(
    "--skip",
    metavar="PATTERN",
    multiple=True,
    help="Skip checks by a pattern of their line, such as 'group: *'. Repeatable.",
)
@click.option(
    "--reports",
    metavar="DIRECTORY",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    default=".",
    help="Where to write the reports. Default: the current directory.",
)
@click.option("--keep", is_flag=True, help="Don't remove what was created.")
@click.option("--clean", is_flag=True, help="Only remove what earlier runs have left.")
@click.option("--policy", is_flag=True, help="Only print the IAM policy of a run.")
async def acceptance(
    common: CommonOptions,
    role_arn: str | None,
    fan_out: bool,
    tables: bool,
    skip: tuple[str, ...],
    reports: Path,
    keep: bool,
    clean: bool,
    policy: bool,
) -> None:
    """Check on your AWS account, or another endpoint, what the library promises.

    Creates tables and streams with a unique prefix, puts records, and runs clients
    that are killed and stopped while shards are split and merged. Says beforehand what
    it creates and what that costs, and asks. Removes everything at the end. Writes a
    report as JSON and as Markdown, which you can attach to an issue. The exit status is
    0 only if no check failed.
    """
    if common.external_id and not role_arn:
        raise ConfigurationError("--external-id needs --role-arn: pass both")
    if policy:
        click.echo(
            json.dumps(
                policy_document(fan_out=fan_out, tables=tables, role_arn=role_arn),
                indent=2,
            )
        )
        return
    options = Options(fan_out, tables, keep, skip)
    names = RunNames.new()
    external_id = common.external_id
    async with open_account(names, common.region, role_arn, external_id) as account:
        if clean:
            await _clean(common, account)
            return
        where = f"{_endpoint(account)}, region {account.region}"
        planned = plan(options, has_role=role_arn is not None)
        click.echo("\n".join(planned.lines(names.table, names.prefix, where)), err=True)
        common.confirm("Continue?")
        report = await _run(account, options)
    base = reports / names.prefix
    for suffix, text in ((".json", report.json()), (".md", report.markdown())):
        base.with_suffix(suffix).write_text(text)
    for line in report.lines():
        click.echo(masked(escape_unprintable(line)))
    click.echo(f"reports: {base}.json and {base}.md")
    if not report.is_good:
        sys.exit(1)


async def _run(account: Account, options: Options) -> Report:
    """Make all checks, and remove what they have created, also after a signal."""
    began, started = time.monotonic(), datetime.now(UTC)
    run = Run(account, options, lambda line: click.echo(escape_unprintable(line)))
    work = asyncio.create_task(run.all())
    stopped: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        stopped.append(number)
        if len(stopped) == 1:
            text = "keeping" if options.keep else "removing"
            click.echo(f"stopped; {text} what was created", err=True)
            work.cancel()
        else:
            click.echo(
                "still removing; wait, or kill the process and use --clean", err=True
            )

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    await asyncio.wait([work])
    if options.keep:
        remarks = [f"kept: table {account.names.table} and its streams (--keep)"]
    else:
        remarks = await account.remove_all()
    if stopped or work.exception() is not None:
        # A kept or unremovable resource is named here, since there is no report.
        click.echo("\n".join(remarks or ["everything is removed"]), err=True)
    if stopped:
        sys.exit(128 + stopped[0])
    work.result()  # raises the error of the run
    return Report(
        started=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        region=account.region,
        endpoint=_endpoint(account),
        seconds=time.monotonic() - began,
        results=run.results,
        remarks=remarks,
    )


def _endpoint(account: Account) -> str:
    return "AWS" if account.is_aws else "an endpoint that isn't AWS"


async def _clean(common: CommonOptions, account: Account) -> None:
    """Remove the tagged streams and tables that runs have left."""
    found = [(one, await find_leftovers(one)) for one in account.resources]
    names = [f"{one.kind} {name}" for one, left in found for name in left]
    if not names:
        click.echo("nothing is left")
        return
    click.echo("\n".join(names), err=True)
    common.confirm("Remove them? A run that isn't finished would fail.")
    for one, left in found:
        for name in left:
            await one.begin_deleting(name)
    click.echo(f"removed {len(names)}")
