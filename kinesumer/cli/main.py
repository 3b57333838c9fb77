"""The entry point: global options, lazy loading of commands, and one-line errors."""

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
    "init": ("state_store:init", "Create or verify the state store's table."),
    "consume": ("consume:consume", "Write records of streams to standard output."),
    "status": ("status:status", "Show which client consumes what, and the lag."),
    "health": ("status:health", "Check for a probe that one client is alive."),
    "dashboard": ("dashboard:dashboard", "Serve a page that shows the fleet."),
    "metrics": ("metrics:metrics", "Serve metrics of fleets for Prometheus."),
    "lag": ("status:lag", "Show each shard's lag, and how it develops."),
    "doctor": ("doctor:doctor", "Find problems, and say what to do."),
    "verify": ("doctor:verify", "Compare stored positions with the stream."),
    "distribution": (
        "distribution:distribution",
        "Show how shards are spread over clients and clusters.",
    ),
    "pause": ("pause:pause", "Stop consuming a shard, a stream or all streams."),
    "resume": ("pause:resume", "End a pause."),
    "drain": ("pause:drain", "Move a client's shards to the other clients."),
    "seek": ("seek:seek", "Move an app's positions, also while clients run."),
    "reset": ("state_store:reset", "Delete all rows of an app."),
    "tail": ("tail:tail", "Write a stream's records as they arrive, without a group."),
    "produce": ("produce:produce", "Put lines into a stream, for tests."),
    "dlq": ("dlq:dlq", "List, show and put back dead letters."),
    "export": ("positions:export", "Export an app's positions: to a file, or to KCL."),
    "import": ("positions:import_", "Import positions: from a file, or from KCL."),
    "local": ("local:local", "Serve Kinesis, DynamoDB and STS on this machine."),
    "demo": (
        "kinesumer.demo.command:demo",
        "Run a group through faults, and check that nothing is lost.",
    ),
}
"""Each command's module (of this package, unless it has dots), name, and summary."""
FAILURE, WRONG_USE, INTERRUPTED = 1, 2, 130
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Faults that the user has to fix: they aren't defects to report."""


class LazyGroup(click.Group):
    """Imports a command when it is used, and turns an exception into one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        path = module if "." in module else f"kinesumer.cli.{module}"
        command = getattr(import_module(path), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the commands with their summaries; import none of them."""
        with formatter.section("Commands"):
            rows = [(name, summary) for name, (_, summary) in COMMANDS.items()]
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. An exception becomes one line and an exit status."""
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


def exit_status(error: Exception) -> int:
    """Return 2 for wrong use of the command, 1 for every other error."""
    if isinstance(error, CredentialsError):
        return FAILURE
    return WRONG_USE if isinstance(error, ConfigurationError) else FAILURE


def one_line(error: Exception) -> str:
    """Return an error's text as one line."""
    text = escape_unprintable(" ".join(str(error).split()))
    if isinstance(error, KinesumerError):
        return text
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        return f"can't write output: {error.strerror}; check the disk"
    return (
        f"unexpected {type(error).__name__}: {text}; "
        "run `kinesumer --debug …` for the traceback, and please report it"
    )


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    default="WARNING",
    show_default=True,
    help="The lowest level that the library logs to standard error.",
)
@click.version_option(package_name="kinesumer")
def cli(debug: bool, log_level: str) -> None:
    """Consume Amazon Kinesis streams as a group, and operate such groups."""
    del debug  # LazyGroup.invoke() reads it
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    logging.getLogger("kinesumer").setLevel(log_level.upper())


def main() -> None:
    """Run the command."""
    cli.main(prog_name="kinesumer")
