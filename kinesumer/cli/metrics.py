"""``kinesumer metrics``."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from kinesumer.cli import options
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from prometheus_client import CollectorRegistry

    from kinesumer.exporter.collector import Exporter

LISTEN = "127.0.0.1:9466"
EVERY_SECONDS = 15.0
SILENT_SECONDS = 10.0
"""Each connection has a thread: one that was cut off would keep it for good."""


@click.command()
@click.option(
    "--app",
    "apps",
    envvar="KINESUMER_APP",
    required=True,
    multiple=True,
    show_envvar=True,
    help="The group to tell of; may be repeated.",
)
@options.table
@options.region
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=LISTEN,
    show_default=True,
    help="Where to answer scrapes; port 0 takes a free one.",
)
@click.option(
    "--every",
    type=options.Real(min=1.0),
    default=EVERY_SECONDS,
    show_default=True,
    help="Seconds between two readings, however often it is scraped.",
)
@click.option("--once", is_flag=True, help="Read once, print the metrics, and end.")
@options.lag
@options.roles
@options.external_id
def metrics(
    apps: tuple[str, ...],
    table: str,
    region: str | None,
    listen: str,
    every: float,
    once: bool,
    lag: bool,
    role: tuple[str, ...],
    external_id: str | None,
) -> None:
    """Serve what others can see of a fleet as metrics for Prometheus: it reads only.

    The metrics are described in docs/monitoring.md. One exporter for each state store
    is enough. SIGTERM and Ctrl-C end it.
    """
    from kinesumer.admin.connect import parse_roles
    from kinesumer.exporter.collector import AppReader, Exporter
    from kinesumer.model.validation import validate_name
    from kinesumer.runtime.clock import SystemClock

    roles, clock = parse_roles(role, external_id), SystemClock()
    names = [validate_name("app", app) for app in dict.fromkeys(apps)]
    readings = [AppReader(app, clock, roles, lag=lag) for app in names]
    place = _place(listen)
    asyncio.run(_metrics(Exporter(readings), table, region, place, every, once))


def _place(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 65536):
        raise ConfigurationError(
            f"--listen {listen}: an address and a port are needed, such as {LISTEN}"
        )
    return host.strip("[]"), int(port)


async def _metrics(
    exporter: Exporter,
    table: str,
    region: str | None,
    place: tuple[str, int],
    every: float,
    once: bool,
) -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    from kinesumer.admin.connect import connect

    async with connect(table, region) as (clients, store):
        await exporter.read(clients, store)
        registry = CollectorRegistry()
        registry.register(exporter)
        if once:
            click.echo(generate_latest(registry).decode(), nl=False)
            return
        with _served(registry, *place) as url:
            click.echo(f"metrics at {url}")
            await _until_signal(exporter.run(clients, store, every))


@contextmanager
def _served(registry: CollectorRegistry, host: str, port: int) -> Iterator[str]:
    """Answer scrapes while the block runs; give the address."""
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise ConfigurationError(
            f"--listen {host}:{port} can't be served: {error.strerror or error}"
        ) from error
    server.RequestHandlerClass = _patient(server.RequestHandlerClass)
    name = f"[{host}]" if ":" in host else host
    try:
        yield f"http://{name}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _patient(handler: Any) -> Any:
    """Return a handler of requests that gives up who is silent, or has gone away."""

    class Patient(handler):  # type: ignore[misc]
        timeout = SILENT_SECONDS

        def handle(self) -> None:
            with suppress(TimeoutError, ConnectionError):
                super().handle()

    return Patient


async def _until_signal(work: Coroutine[None, None, None]) -> None:
    """Do something without an end until SIGINT or SIGTERM."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
