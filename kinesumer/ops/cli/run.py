"""``kinesumer run``: consume by the handlers of an application."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from kinesumer import blocking
from kinesumer.client import Kinesumer
from kinesumer.config import TABLE_VARIABLE
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.kclpy.settings import read_settings
from kinesumer.ops.cli.log_format import set_format
from kinesumer.ops.cli.options import CommonOptions, command
from kinesumer.ops.supervisor import probes
from kinesumer.ops.supervisor.health import STARTING, read_health
from kinesumer.ops.supervisor.metrics import (
    collect_families,
    require_sdk,
    set_up_metrics,
)
from kinesumer.ops.supervisor.processes import PROCESS_VARIABLE, Supervisor
from kinesumer.ops.supervisor.reports import Report, start_to_report
from kinesumer.ops.supervisor.target import ClientOptions, load_processor, load_target
from kinesumer.runtime.clock import SystemClock

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("kinesumer.run")
# More processes than a large machine has cores.
MAX_PROCESSES = 256
PORT = click.IntRange(0, 65535)
# The options of the supervisor, which its processes must not take from the environment.
OF_SUPERVISOR = ("processes", "reload", "health_port", "metrics_port")


class RunOptions(NamedTuple):
    """The command's options besides those of the client."""

    # The properties of a record processor; None for another application.
    properties: Path | None
    processes: int
    reload: bool
    host: str
    health_port: int | None
    metrics_port: int | None
    log_format: str
    # How a process reports to its supervisor.
    report_to: int | None
    report_metrics: bool


def _option(name: str, **settings: Any) -> Callable[[F], F]:
    """Return a decorator for an option that an environment variable can give."""
    variable = f"KINESUMER_{name.strip('-').upper().replace('-', '_')}"
    return click.option(name, envvar=variable, show_envvar=True, **settings)


@command("region")
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@_option(
    "--kclpy",
    is_flag=True,
    help="MODULE:ATTRIBUTE is a record processor of amazon_kclpy: a class, or a "
    "function that returns a processor. Needs --properties.",
)
@_option(
    "--properties",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The properties file that MultiLangDaemon had, for --kclpy.",
)
@_option(
    "--app",
    help="The group. Default: the name of the App, or the applicationName.",
)
@click.option(
    "--table",
    envvar=TABLE_VARIABLE,
    show_envvar=True,
    help="The DynamoDB table of the state store. Default: that of the App, or "
    "kinesumer-state-store.",
)
@_option(
    "--client-id",
    help="Unique among live processes. If there are several processes, their index is "
    "appended: billing-0 becomes billing-0-0, billing-0-1 … Default: a new ID.",
)
@_option(
    "--processes",
    type=click.IntRange(1, MAX_PROCESSES),
    default=1,
    show_default=True,
    help="How many processes to run. Each is a client of the group. More than one are "
    "supervised.",
)
@_option(
    "--reload",
    is_flag=True,
    help="For development: start again when a Python file below the working directory "
    "changes.",
)
@_option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address of the ports below. In a container: 0.0.0.0.",
)
@_option(
    "--health-port",
    type=PORT,
    help="Serve /live and /ready for probes: 200, or 503 unless all processes are. 0: "
    "a free port.",
)
@_option(
    "--metrics-port",
    type=PORT,
    help="Serve /metrics of all processes for Prometheus. 0: a free port.",
)
@_option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Log lines for people, or one JSON object for each.",
)
# How a process reports to its supervisor.
@click.option("--report-to", type=int, hidden=True)
@click.option("--report-metrics", is_flag=True, hidden=True)
def run(
    common: CommonOptions,
    target: str,
    app: str | None,
    table: str | None,
    client_id: str | None,
    kclpy: bool,
    **options: Any,
) -> None:
    """Run an application until SIGTERM or Ctrl-C, or until it ends by itself.

    MODULE:ATTRIBUTE names a kinesumer.App, or a function that takes a client, in a
    module of the working directory or of an installed package. With --kclpy, it names a
    record processor of amazon_kclpy, which runs unchanged and without Java.

    The first signal hands the shards over to other clients, and a second one stops at
    once. A process that dies starts again after 1 to 30 seconds. The command ends with
    status 2 if the application can't be started as it is, and with status 1 if it ends
    with an error, or if one of its processes dies ten times in a row, each time within
    a minute.
    """
    given = RunOptions(**options)
    is_supervised = given.processes > 1 or given.reload
    if given.report_to is None:
        set_format(given.log_format, None)
    else:
        set_format(given.log_format, _process())
    if not log.isEnabledFor(logging.INFO) and log.isEnabledFor(logging.WARNING):
        log.setLevel(logging.INFO)  # starts and ends, unless only errors are wanted
    if kclpy != (given.properties is not None):
        raise ConfigurationError("pass both --kclpy and --properties FILE, or neither")
    if given.properties is not None:
        client_id = client_id or read_settings(given.properties).client_id
    client = ClientOptions(app, table, common.region, client_id)
    if is_supervised:
        click.get_current_context().exit(_supervise(target, client, given))
    try:
        _run_here(target, client, given)
    except KinesumerError:
        raise
    except Exception:
        # It is the application's error, and not this command's.
        log.critical("the application has ended with an error", exc_info=True)
        click.get_current_context().exit(1)


def _process() -> int:
    return int(os.environ.get(PROCESS_VARIABLE, "0"))


def _run_here(target_name: str, given: ClientOptions, options: RunOptions) -> None:
    """Run the application in this process."""
    if with_metrics := options.report_metrics or options.metrics_port is not None:
        set_up_metrics()
    client: Kinesumer | blocking.Kinesumer | None = None

    def read() -> Report:
        metrics = collect_families() if with_metrics else []
        if client is None:
            return Report(_process(), given.client_id or "", STARTING, metrics)
        return Report(_process(), client.client_id, read_health(client), metrics)

    # Importing the application may take long: a probe must not end it meanwhile.
    with _serving(options, lambda: [read()]):
        if options.report_to is not None:
            start_to_report(options.report_to, read)
        if options.properties is None:
            target = load_target(target_name)
        else:
            target = load_processor(target_name, options.properties)
        client = target.client(given)
        if isinstance(client, Kinesumer):
            asyncio.run(target.run(client))
        else:
            target.run_blocking(client)


def _supervise(target: str, given: ClientOptions, options: RunOptions) -> int:
    """Run the application in processes, and return the exit status."""
    if options.metrics_port is not None:
        require_sdk()  # once, in place of an error from each process
    first = given.client_id or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    client_ids = [f"{first}-{number}" for number in range(options.processes)]
    if options.processes == 1:
        client_ids = [first]
    own = {f"KINESUMER_{name.upper()}" for name in OF_SUPERVISOR}

    def command_of(process: int, report_to: int) -> list[str]:
        words = {
            "--app": given.app,
            "--table": given.table,
            "--region": given.region,
            "--client-id": client_ids[process],
            "--log-format": options.log_format,
            "--report-to": str(report_to),
            "--properties": options.properties,
        }
        named = [f"{name}={value}" for name, value in words.items() if value]
        if options.metrics_port is not None:
            named.append("--report-metrics")
        if options.properties is not None:
            named.append("--kclpy")
        return [*_this_command(), "run", *named, "--", target]

    supervisor = Supervisor(
        client_ids,
        command_of,
        SystemClock(),
        {name: value for name, value in os.environ.items() if name not in own},
        Path.cwd() if options.reload else None,
    )
    with _serving(options, supervisor.reports):
        return asyncio.run(supervisor.run())


def _this_command() -> list[str]:
    """Return the command that runs this one again, with its global options."""
    parent = click.get_current_context().find_root().params
    words = [sys.executable, "-m", "kinesumer.ops.cli"]
    words.append(f"--log-level={parent['log_level']}")
    return [*words, "--debug"] if parent["debug"] else words


@contextmanager
def _serving(options: RunOptions, read: Callable[[], list[Report]]) -> Iterator[None]:
    """Serve the ports that the options name while the block runs."""
    with ExitStack() as stack:
        for name, port, answers in (
            ("health", options.health_port, probes.health_answers(read)),
            ("metrics", options.metrics_port, probes.metrics_answers(read)),
        ):
            if port is None:
                continue
            served = probes.serving(options.host, port, f"--{name}-port", answers)
            url = stack.enter_context(served)
            log.info("%s at %s", name, " ".join(f"{url}{path}" for path in answers))
        yield
