"""``kinesumer dashboard`` and ``metrics``, which serve until a signal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click
from prometheus_client import CollectorRegistry, generate_latest, start_http_server

from kinesumer.errors import ConfigurationError
from kinesumer.handlers.dead_letters.targets import parse_target
from kinesumer.model.validation import validate_name
from kinesumer.ops.cli.console import run_until_signal, safe_on_terminal
from kinesumer.ops.cli.options import ROLES, CommonOptions, FiniteFloat, command
from kinesumer.ops.dashboard.actions import ActionHandler
from kinesumer.ops.dashboard.model import DashboardInfo
from kinesumer.ops.dashboard.poller import Poller, StoreFleetSource
from kinesumer.ops.dashboard.records import LetterBrowser, RecordBrowser
from kinesumer.ops.dashboard.server import AppList, Guard, Server, listen, serving
from kinesumer.ops.exporter.collector import (
    DEFAULT_OPTIONS,
    AppReader,
    Exporter,
    ScaleOptions,
)
from kinesumer.runtime.clock import SystemClock

LISTEN = "127.0.0.1:9466"
# Without a time-out, a dead peer would occupy its connection's thread forever.
IDLE_TIMEOUT_SECONDS = 10.0


@command("app", "table", "region", *ROLES)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port to listen on at 127.0.0.1. Default: a free port.",
)
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Allow the browser that opens the printed link to pause, drain and seek.",
)
@click.option(
    "--browse-records",
    is_flag=True,
    help="Allow the browser that opens the printed link to read the streams' records.",
)
@click.option(
    "--dead-letters",
    metavar="TARGET",
    help="The target of the app's dead letters, as for dlq. With --browse-records, the "
    "page lists and shows them; with --allow-changes too, it puts records back.",
)
async def dashboard(
    common: CommonOptions,
    port: int,
    allow_changes: bool,
    browse_records: bool,
    dead_letters: str | None,
) -> None:
    """Serve a page on 127.0.0.1 that shows the fleet, until Ctrl-C.

    The server reads the state store and the streams every two seconds while a page is
    open, and otherwise twice a minute, for the charts of the last hour. Without
    --allow-changes, it changes nothing; without --browse-records, it shows no data of
    records. With these options, one browser can do so through the printed link.
    """
    app, roles, clock = common.app, common.roles(), SystemClock()
    if dead_letters is not None:
        parse_target(dead_letters)
        if not browse_records:
            raise ConfigurationError(
                "--dead-letters shows the data of records: give --browse-records, too"
            )
    async with common.connect(waits=True) as (clients, store):
        region = clients.region or ""
        about = DashboardInfo(
            app,
            common.table,
            region,
            control=allow_changes,
            records=browse_records,
            letters=dead_letters is not None,
        )
        poller = Poller(about, StoreFleetSource(app, clients, store, roles), clock)
        letters = actions = None
        if dead_letters is not None:
            letters = LetterBrowser(app, dead_letters, clients, roles)
        if allow_changes:
            actions = ActionHandler(app, clients, store, roles, letters)
        records = RecordBrowser(app, clients, store, roles) if browse_records else None
        with listen(port) as opened:
            guard = Guard(opened.getsockname()[1])
            apps = AppList(common.table, store, clock)
            server = Server(poller, guard, actions, records, apps, letters)
            async with serving(server, poller, opened) as polling:
                click.echo(guard.link(invites=allow_changes or browse_records))
                await run_until_signal(polling)


# --- metrics --------------------------------------------------------------------------


@command("table", "region", "lag", *ROLES)
@click.option(
    "--app",
    "apps",
    envvar="KINESUMER_APP",
    required=True,
    multiple=True,
    show_envvar=True,
    help="The group to report on. Repeatable.",
)
@click.option(
    "--listen",
    "address",
    metavar="HOST:PORT",
    default=LISTEN,
    show_default=True,
    help="The address to serve scrapes on. Port 0: a free port.",
)
@click.option(
    "--every",
    type=FiniteFloat(min=1.0),
    default=10.0,
    show_default=True,
    help="Seconds between two reads, independent of the scrapes.",
)
@click.option(
    "--target-utilization",
    type=FiniteFloat(min=0.01),
    default=DEFAULT_OPTIONS.target_utilization,
    show_default=True,
    help="Seconds of work per second that a client should have, for the number of "
    "clients that the load needs.",
)
@click.option(
    "--catch-up-seconds",
    type=FiniteFloat(min=1.0),
    default=DEFAULT_OPTIONS.catch_up_seconds,
    show_default=True,
    help="The time in which a backlog should be removed, for the number of clients.",
)
@click.option(
    "--top-shards",
    type=click.IntRange(min=0),
    default=DEFAULT_OPTIONS.top_shards,
    show_default=True,
    help="How many of an app's shards have metrics of their own: the busiest ones, and "
    "those furthest behind.",
)
@click.option("--once", is_flag=True, help="Read once, print the metrics, and end.")
async def metrics(
    common: CommonOptions,
    apps: tuple[str, ...],
    address: str,
    every: float,
    once: bool,
    **scale: Any,
) -> None:
    """Serve metrics of a fleet for Prometheus, from the state store. Changes nothing.

    docs/monitoring.md describes the metrics. One exporter for each state store is
    enough. SIGTERM or Ctrl-C ends it.
    """
    roles, clock = common.roles(), SystemClock()
    names = [validate_name("app", app) for app in dict.fromkeys(apps)]
    options = ScaleOptions(**scale)
    exporter = Exporter(
        [AppReader(app, clock, roles, lag=common.lag, options=options) for app in names]
    )
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 65536):
        raise ConfigurationError(
            f"--listen {address} isn't an address; pass host and port, such as {LISTEN}"
        )
    async with common.connect(waits=not once) as (clients, store):
        # Read once before serving, so that missing permissions end the command at once.
        await exporter.read(clients, store)
        registry = CollectorRegistry()
        registry.register(exporter)
        if once:
            text = generate_latest(registry).decode()
            click.echo(safe_on_terminal(text), nl=False)
            return
        with _served(registry, host.strip("[]"), int(port)) as url:
            click.echo(f"metrics at {url}")
            work = exporter.run(clients, store, every)
            await run_until_signal(asyncio.create_task(work))


@contextmanager
def _served(registry: CollectorRegistry, host: str, port: int) -> Iterator[str]:
    """Answer Prometheus's scrapes while the block runs, and yield the URL."""
    # Scrapes have threads of their own, so slow reads of the table don't delay them.
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise ConfigurationError(
            f"can't listen on --listen {host}:{port}: {error.strerror or error}; pass "
            "another address"
        ) from error
    server.RequestHandlerClass = _with_timeout(server.RequestHandlerClass)
    # A URL has an IPv6 address in brackets.
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
