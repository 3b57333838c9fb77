"""``kinesumer metrics``."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from kinesumer.cli import options
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry

    from kinesumer.cli.options import CommonOptions
    from kinesumer.exporter.collector import Exporter

LISTEN = "127.0.0.1:9466"
INTERVAL_SECONDS = 15.0
IDLE_TIMEOUT_SECONDS = 10.0
"""Each connection has a thread, which a dead peer would otherwise hold for good."""


@click.command()
@click.option(
    "--app",
    "apps",
    envvar="KINESUMER_APP",
    required=True,
    multiple=True,
    show_envvar=True,
    help="The group to report on. Repeatable.",
)
@options.table
@options.region
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=LISTEN,
    show_default=True,
    help="The address to serve scrapes on. Port 0: a free port.",
)
@click.option(
    "--every",
    type=options.FiniteFloat(min=1.0),
    default=INTERVAL_SECONDS,
    show_default=True,
    help="Seconds between two reads, independent of the scrapes.",
)
@click.option("--once", is_flag=True, help="Read once, print the metrics, and end.")
@options.lag
@options.roles
@options.pass_common
def metrics(
    common: CommonOptions, apps: tuple[str, ...], listen: str, every: float, once: bool
) -> None:
    """Serve metrics of a fleet for Prometheus, read from its state. Changes nothing.

    docs/monitoring.md describes the metrics. One exporter for each state store is
    enough. SIGTERM or Ctrl-C ends it.
    """
    from kinesumer.exporter.collector import AppReader, Exporter
    from kinesumer.model.validation import validate_name
    from kinesumer.runtime.clock import SystemClock

    roles, clock = common.roles(), SystemClock()
    names = [validate_name("app", app) for app in dict.fromkeys(apps)]
    exporter = Exporter([AppReader(app, clock, roles, lag=common.lag) for app in names])
    address = _parse_address(listen)
    asyncio.run(_export(common, exporter, None if once else address, every))


def _parse_address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 65536):
        raise ConfigurationError(
            f"--listen {listen} isn't an address; pass host and port, such as {LISTEN}"
        )
    return host.strip("[]"), int(port)


async def _export(
    common: CommonOptions,
    exporter: Exporter,
    address: tuple[str, int] | None,
    interval_seconds: float,
) -> None:
    """Serve at an address; print the metrics once if there is none."""
    from prometheus_client import CollectorRegistry, generate_latest

    from kinesumer.cli.signals import run_until_signal

    async with common.connect() as (clients, store):
        await exporter.read(clients, store)
        registry = CollectorRegistry()
        registry.register(exporter)
        if address is None:
            click.echo(generate_latest(registry).decode(), nl=False)
            return
        with _served(registry, *address) as url:
            click.echo(f"metrics at {url}")
            work = exporter.run(clients, store, interval_seconds)
            await run_until_signal(asyncio.create_task(work))


@contextmanager
def _served(registry: CollectorRegistry, host: str, port: int) -> Iterator[str]:
    """Serve scrapes while the block runs, and yield the URL."""
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise ConfigurationError(
            f"can't listen on --listen {host}:{port}: {error.strerror or error}; pass "
            "another address"
        ) from error
    server.RequestHandlerClass = _with_timeout(server.RequestHandlerClass)
    name = f"[{host}]" if ":" in host else host
    try:
        yield f"http://{name}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _with_timeout(handler: Any) -> Any:
    """Return a request handler that drops silent and broken connections."""

    class HandlerWithTimeout(handler):  # type: ignore[misc]
        timeout = IDLE_TIMEOUT_SECONDS

        def handle(self) -> None:
            with suppress(TimeoutError, ConnectionError):
                super().handle()

    return HandlerWithTimeout
