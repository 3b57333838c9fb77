"""The entry point: global options, commands loaded when used, and one-line errors."""

from __future__ import annotations

import errno
import logging
import sys
import traceback
from importlib import import_module
from typing import Any

import click

from kinesumer.errors import ConfigurationError, CredentialsError, KinesumerError
from kinesumer.runtime.text import escape_unprintable

COMMANDS = {
    "init": "kinesumer.cli.init:init",
    "consume": "kinesumer.cli.consume:consume",
    "status": "kinesumer.cli.status:status",
    "health": "kinesumer.cli.health:health",
    "dashboard": "kinesumer.cli.dashboard:dashboard",
    "metrics": "kinesumer.cli.metrics:metrics",
    "lag": "kinesumer.cli.lag:lag",
    "doctor": "kinesumer.cli.doctor:doctor",
    "verify": "kinesumer.cli.verify:verify",
    "distribution": "kinesumer.cli.distribution:distribution",
    "pause": "kinesumer.cli.pause:pause",
    "resume": "kinesumer.cli.pause:resume",
    "drain": "kinesumer.cli.drain:drain",
    "seek": "kinesumer.cli.seek:seek",
    "reset": "kinesumer.cli.reset:reset",
    "tail": "kinesumer.cli.tail:tail",
    "produce": "kinesumer.cli.produce:produce",
    "dlq": "kinesumer.cli.dlq:dlq",
    "export": "kinesumer.cli.export:export",
    "import": "kinesumer.cli.import_:import_",
    "local": "kinesumer.cli.local:local",
    "demo": "kinesumer.demo.command:demo",
}
FAULT, WRONG_USE, INTERRUPTED = 1, 2, 130
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""A disk's faults: they need somebody's hand, and no report."""


class Commands(click.Group):
    """Imports a command when it is asked for, and turns errors into one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which one meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the help's list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; whatever it raises becomes one line and an exit status."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if ctx.params.get("debug"):
                traceback.print_exception(error)
            else:
                click.echo(f"error: {one_line(error)}", err=True)
            ctx.exit(exit_status(error))


SUMMARIES = {
    "init": "Create the state store's table, or verify it.",
    "consume": "Write the records of streams to standard output.",
    "status": "Show who consumes what, and how far behind.",
    "health": "Tell whether one client is alive, for probes.",
    "dashboard": "Serve a page that shows the fleet.",
    "metrics": "Serve metrics of fleets for Prometheus.",
    "lag": "Show how far each shard is behind, and where that is going.",
    "doctor": "Look for what is wrong, and say what to do.",
    "verify": "Compare stored positions with the stream.",
    "distribution": "Show how shards are spread over clients and clusters.",
    "pause": "Have nobody consume a shard, a stream or an app.",
    "resume": "End a pause.",
    "drain": "Move a client's shards to the others.",
    "seek": "Read on from elsewhere, while clients run or not.",
    "reset": "Delete what an app has stored.",
    "tail": "Write a stream's records as they arrive, without a group.",
    "produce": "Put lines into a stream, for trials.",
    "dlq": "List, show and put back dead letters.",
    "export": "Write down an app's positions, or hand them to a KCL fleet.",
    "import": "Give an app the positions of a file, or of a KCL fleet.",
    "local": "Serve Kinesis, DynamoDB and STS on this machine.",
    "demo": "Show it all at work, and check that nothing is lost.",
}


def exit_status(error: Exception) -> int:
    """Return 2 for what was asked for wrongly, 1 for everything that went wrong."""
    if isinstance(error, CredentialsError):
        return FAULT
    return WRONG_USE if isinstance(error, ConfigurationError) else FAULT


def one_line(error: Exception) -> str:
    """Return what an error says, in one line."""
    text = escape_unprintable(" ".join(str(error).split()))
    if isinstance(error, KinesumerError):
        return text
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return f"what is to be written can't be: {error.strerror}"
    return (
        f"unexpected {type(error).__name__}: {text}; "
        "run `kinesumer --debug …` for the traceback, and please report it"
    )


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    default="WARNING",
    show_default=True,
    help="What the library logs to standard error.",
)
@click.version_option(package_name="kinesumer")
def cli(debug: bool, log_level: str) -> None:
    """Consume Amazon Kinesis streams together, and look at those who do."""
    del debug  # Commands.invoke() looks at it
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    logging.getLogger("kinesumer").setLevel(log_level.upper())


def main() -> None:
    """Run the command."""
    cli.main(prog_name="kinesumer")
