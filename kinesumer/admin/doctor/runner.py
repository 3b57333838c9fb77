"""Run all checks of ``kinesumer doctor``."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin.doctor import (
    capacity,
    clock_skew,
    hash_space,
    members,
    ownership,
    permission_probe,
    positions,
    split_fleet,
)
from kinesumer.admin.doctor.observation import AppObservation, StreamObserver
from kinesumer.admin.doctor.permission_probe import ProbeLog, probe_stream, probe_table
from kinesumer.admin.observation import HeartbeatObserver
from kinesumer.admin.snapshot import read_known_snapshot
from kinesumer.aws.account import CallerIdentity, read_caller, read_limits
from kinesumer.aws.dynamodb import open_store
from kinesumer.coordination.startup_checks import live_go_clients
from kinesumer.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kinesumer.admin.connect import Roles
    from kinesumer.admin.doctor.finding import Finding
    from kinesumer.admin.doctor.permission_probe import Probe
    from kinesumer.aws.dynamodb import DynamoStateStore
    from kinesumer.aws.session import ClientFactory

GENERAL_CHECKS = ("credentials", "permissions", "state store")
APP_CHECKS = (
    members.CHECK,
    hash_space.CHECK,
    ownership.ORPHAN_SHARDS,
    ownership.HAND_OVERS,
    split_fleet.CHECK,
    positions.POSITIONS,
    positions.RETENTION,
    "hot shards",
)
APP_CHECK_FUNCTIONS: tuple[Callable[[AppObservation], Iterator[Finding]], ...] = (
    members.member_problems,
    members.operator_pauses,
    split_fleet.split_fleet,
    hash_space.uncovered_hash_keys,
    ownership.orphan_shards,
    ownership.stuck_hand_overs,
    positions.invalid_positions,
    positions.expiring_records,
    capacity.hot_shards,
    capacity.throttled_shards,
    capacity.idle_clients,
)


class DoctorOptions(NamedTuple):
    """The table, app and streams to check."""

    table: str
    app: str | None
    streams: Sequence[str]
    roles: Roles
    seconds: float
    """The time between the two observations of an app."""


class DoctorResult(NamedTuple):
    """The findings, and how far the checks got."""

    caller: CallerIdentity | None
    checks: tuple[str, ...]
    examined: bool
    """Whether the app's rows could be read."""
    answered: bool
    """Whether the state store answered, even with an error."""
    findings: list[Finding]


async def run_checks(clients: ClientFactory, options: DoctorOptions) -> DoctorResult:
    """Probe the permissions, observe the app, and return the findings, worst first.

    Raises KinesumerError if the table has no rows of the app.
    """
    log = ProbeLog()
    caller, reading = await _read_caller(clients, log)
    limits = await log.attempt("kinesis:DescribeLimits", "*", read_limits(clients))
    probes = log.probes
    store = await log.attempt("dynamodb", "", open_store(clients, options.table))
    observed = None
    if store is not None:
        table_probes = await probe_table(store, options.table)
        probes += table_probes
        if options.app is not None and _can_read_rows(table_probes):
            observed = await _observe(clients, store, options, options.app, probes)
        else:
            await _probe_streams(clients, options, options.streams, probes)
    findings = [
        *permission_probe.unusable_store(options.table, probes),
        *permission_probe.failed_probes(probes),
        *clock_skew.clock_skew(reading, probes),
        *capacity.shard_quota(limits),
    ]
    if observed is not None:
        findings += [f for check in APP_CHECK_FUNCTIONS for f in check(observed)]
    findings.sort(key=lambda finding: -finding.severity)
    checks = [
        *GENERAL_CHECKS,
        *(["clocks"] if reading is not None else []),
        *([capacity.CHECK] if limits is not None else []),
        *(APP_CHECKS if observed else []),
    ]
    answered = observed is not None or not any(
        isinstance(probe.error, StoreUnavailableError) for probe in probes
    )
    return DoctorResult(caller, tuple(checks), observed is not None, answered, findings)


def _can_read_rows(table_probes: Sequence[Probe]) -> bool:
    allowed = {probe.action for probe in table_probes if probe.error is None}
    return {"dynamodb:GetItem", "dynamodb:Query"} <= allowed


async def _read_caller(
    clients: ClientFactory, log: ProbeLog
) -> tuple[CallerIdentity | None, clock_skew.ClockReading | None]:
    # The first call also opens a connection, so the second call measures the clock.
    action = "sts:GetCallerIdentity"
    if await log.attempt(action, "-", read_caller(clients)) is None:
        return None, None
    before = time.time()
    caller = await log.attempt(action, "-", read_caller(clients))
    if caller is None:
        return None, None
    return caller, clock_skew.ClockReading(caller.now, before, time.time())


async def _probe_streams(
    clients: ClientFactory,
    options: DoctorOptions,
    names: Sequence[str],
    probes: list[Probe],
) -> set[str]:
    """Probe each stream; return those that can be read."""
    results = await asyncio.gather(
        *(probe_stream(clients, options.roles.stream(name)) for name in names)
    )
    for stream_probes in results:
        probes += stream_probes
    return {
        name
        for name, stream_probes in zip(names, results, strict=True)
        if not any(probe.error for probe in stream_probes)
    }


async def _observe(
    clients: ClientFactory,
    store: DynamoStateStore,
    options: DoctorOptions,
    app: str,
    probes: list[Probe],
) -> AppObservation:
    """Observe an app and its streams twice."""
    began = time.monotonic()
    first = await read_known_snapshot(store, app, options.table)
    arns = [stream.arn for stream in first.streams]
    named = list(dict.fromkeys([*arns, *options.streams]))
    parse_rows = await _probe_streams(clients, options, named, probes)
    streams = StreamObserver(clients, options.roles, parse_rows)
    lags = await streams.sample_lags(first)
    heartbeats = HeartbeatObserver(app)
    await heartbeats.watch(store, first)
    await asyncio.sleep(max(0.0, began + options.seconds - time.monotonic()))
    second = await read_known_snapshot(store, app, options.table)
    seconds = time.monotonic() - began
    ages = await heartbeats.watch(store, second)
    observed = await streams.observe(second, lags)
    probes += streams.failed
    go_rows = await store.query(f"client#{app}", consistent=True)
    return AppObservation(
        app=app,
        first=first,
        second=second,
        seconds=seconds,
        heartbeat_ages=ages,
        streams=observed,
        go_clients=live_go_clients(go_rows, time.time()),
    )
