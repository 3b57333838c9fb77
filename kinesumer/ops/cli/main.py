"""Run the command line: global options, lazy import of commands, one-line errors."""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from keyword import iskeyword
from typing import Any

import click

from kinesumer.errors import ConfigurationError, CredentialsError, KinesumerError
from kinesumer.ops.cli.log_format import logs_json
from kinesumer.runtime.extras import package_version
from kinesumer.runtime.text import escape_unprintable

# Each command's module (in this package, unless it has dots), and its summary, which is
# here so that the help doesn't import all commands with AWS's SDK.
COMMANDS = {
    "init": ("group_changes", "Create or verify the state store's table."),
    "consume": ("consume", "Write records of streams to standard output."),
    "run": ("run", "Run an application, in one or several processes."),
    "status": ("status", "Show which client consumes what, and the lag."),
    "apps": ("status", "List every app of a table."),
    "health": ("status", "Check for a probe that one client is alive."),
    "dashboard": ("serve", "Serve a page that shows the fleet."),
    "metrics": ("serve", "Serve metrics of fleets for Prometheus."),
    "lag": ("status", "Show each shard's lag, and how it develops."),
    "doctor": ("doctor", "Find problems, and say what to do."),
    "verify": ("doctor", "Compare stored positions with the stream."),
    "verify history": ("history", "Check what clients wrote into histories."),
    "distribution": ("status", "Show how shards are spread over clients and clusters."),
    "pause": ("group_changes", "Stop consuming a shard, a stream or all streams."),
    "resume": ("group_changes", "End a pause."),
    "drain": ("group_changes", "Move a client's shards to the other clients."),
    "seek": ("group_changes", "Move an app's positions, also while clients run."),
    "reset": ("group_changes", "Delete all rows of an app."),
    "tail": ("consume", "Write a stream's records as they arrive, without a group."),
    "fan-out": ("fan_out", "List, register and deregister consumers of a stream."),
    "produce": ("produce", "Put lines into a stream, for tests."),
    "dlq": ("dlq", "List, show and put back dead letters."),
    "export": ("positions", "Export an app's positions: to a file, or to KCL."),
    "import": ("positions", "Import positions: from a file, or from KCL."),
    "kcl cut-over": ("kcl", "Move an app out of a KCL fleet's lease table, or back."),
    "local": (
        "kinesumer.testing.embedded_aws.command",
        "Serve Kinesis, DynamoDB and STS on this machine.",
    ),
    "demo": (
        "kinesumer.testing.trial.demo",
        "Run a group through faults, and check that nothing is lost.",
    ),
    "acceptance": (
        "kinesumer.testing.trial.acceptance.command",
        "Check on your AWS account what the library promises.",
    ),
}
# Disk errors that the user has to fix. They aren't defects of the program.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def ended_by(number: signal.Signals) -> int:
    """Return the status that shells report for a program that a signal has ended."""
    return 128 + number


class LazyGroup(click.Group):
    """Imports a command when it is used, and prints an exception as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0], re.sub(r"\W", "_", cmd_name)
        path = module if "." in module else f"kinesumer.ops.cli.{module}"
        # A keyword can't name a function: the command import is import_().
        command = getattr(import_module(path), name + "_" * iskeyword(name))
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, whose name may have two words."""
        two = " ".join(args[:2])
        return super().resolve_command(
            ctx, [two, *args[2:]] if two in COMMANDS else args
        )

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the commands with their summaries, without importing the commands."""
        with formatter.section("Commands"):
            rows = [(name, summary) for name, (_, summary) in COMMANDS.items()]
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Print an exception as one line, and exit with its status."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            ctx.exit(ended_by(signal.SIGINT))
        except BrokenPipeError:
            # The reader closed the pipe, as `head -1` does. Python flushes standard
            # output at exit, and would report that it can't write the rest.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(ended_by(signal.SIGPIPE))
        except Exception as error:
            if ctx.params.get("debug"):
                traceback.print_exception(error)
            else:
                text = one_line(error)
                if isinstance(error, ConfigurationError):
                    text = with_options(text, self._options(ctx))
                tell_error(text)
            is_wrong_use = isinstance(error, ConfigurationError)
            is_wrong_use &= not isinstance(error, CredentialsError)
            shown = click.UsageError if is_wrong_use else click.ClickException
            ctx.exit(shown.exit_code)

    def _options(self, ctx: click.Context) -> dict[str, str]:
        """Return the invoked command's options by the names of their values."""
        commands = [self.get_command(ctx, ctx.invoked_subcommand or "")]
        if isinstance(commands[0], click.Group):
            commands += commands[0].commands.values()
        return {
            option.name: option.opts[-1]
            for command in commands
            if command is not None
            for option in command.params
            if isinstance(option, click.Option) and option.name is not None
        }


# A function's argument: with its value, such as app='a#b', or a name such as client_id.
# What has a dash before it is an option already.
_ARGUMENT = re.compile(r"(?<![\w-])(?:([a-z_]+)(=)(?=\W|\d)|([a-z]+(?:_[a-z]+)+)\b)")
# An option that is followed by its value.
_OPTION = re.compile(r"--[\w-]+ $")


def with_options(text: str, options: Mapping[str, str]) -> str:
    """Return an error's text after replacing a function's arguments by options.

    ``options`` are the command's options by the names of the arguments. The name of
    another argument is separated from its value by a space. A value that follows an
    option isn't changed.
    """

    def replaced(match: re.Match[str]) -> str:
        if _OPTION.search(text, 0, match.start()):
            return match[0]
        name, equals = match[1] or match[3], match[2] or ""
        return options[name] + equals if name in options else name + " " * bool(equals)

    return _ARGUMENT.sub(replaced, text)


def tell_error(text: str) -> None:
    """Print an error on standard error, as JSON if lines are logged so."""
    if logs_json():
        logging.getLogger("kinesumer").critical("%s", text)
    else:
        click.echo(f"error: {text}", err=True)


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
    envvar="KINESUMER_LOG_LEVEL",
    show_envvar=True,
    help="The lowest level that the library logs to standard error.",
)
@click.version_option(package_version("kinesumer"))
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
