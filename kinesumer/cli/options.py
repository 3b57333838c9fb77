"""Options that several commands have."""

from __future__ import annotations

import math
from typing import Any

import click


class Real(click.FloatRange):
    """A number within a range: nan, which lies in every range, and inf are none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number. Fails as click's own types do."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no number that one can wait for.", param, ctx)
        return number


DEFAULT_TABLE = "kinesumer-state-store"

table = click.option(
    "--table",
    envvar="KINESUMER_TABLE",
    default=DEFAULT_TABLE,
    show_default=True,
    show_envvar=True,
    help="The state store's DynamoDB table.",
)
app = click.option(
    "--app",
    envvar="KINESUMER_APP",
    required=True,
    show_envvar=True,
    help="The group: clients of one app share the streams.",
)
region = click.option(
    "--region", help="The AWS region; by default that of the environment or profile."
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
roles = click.option(
    "--role",
    metavar="[STREAM=]ARN",
    multiple=True,
    help="A role to assume to read the streams, or one of them; may be repeated.",
)
external_id = click.option(
    "--external-id", help="The external id that the roles ask for."
)
lag = click.option(
    "--lag/--no-lag",
    default=True,
    help="Ask Kinesis how far each shard is behind (needs to read the streams).",
)
streams = click.option(
    "--stream", multiple=True, help="Only this stream: a name or an ARN; repeatable."
)
output = click.option(
    "--output",
    type=click.Choice(["jsonl", "text", "count"]),
    default="jsonl",
    show_default=True,
    help="One JSON object a record, its data only, or how many there are.",
)
dry_run = click.option("--dry-run", is_flag=True, help="Show it, and do nothing.")
yes = click.option("--yes", is_flag=True, help="Don't ask.")
