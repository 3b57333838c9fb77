"""Run all checks of ``kinesumer doctor``; each module of this package has one kind.

The checks are functions of an observation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kinesumer.aws.account import CallerIdentity, read_caller, read_limits
from kinesumer.aws.dynamodb import DynamoStateStore
from kinesumer.aws.session import ClientFactory
from kinesumer.coordination.startup_checks import live_go_clients
from kinesumer.core.pacing import IDLE_SECONDS
from kinesumer.errors import StoreUnavailableError
from kinesumer.model.rows import MemberRow
from kinesumer.ops.group import problems
from kinesumer.ops.group.client_reports import uses_of_stream
from kinesumer.ops.group.connect import Roles
from kinesumer.ops.group.doctor import members, ownership, permission_probe, streams
from kinesumer.ops.group.doctor.observation import (
    AppObservation,
    observe_streams,
    sample_first,
)
from kinesumer.ops.group.doctor.permission_probe import (
    Probe,
    ProbeLog,
    probe_stream,
    probe_table,
    seconds_ahead,
)
from kinesumer.ops.group.doctor.streams import observe_consumers
from kinesumer.ops.group.fleet_store import open_operator_store
from kinesumer.ops.group.observation import HeartbeatObserver
from kinesumer.ops.group.problems import Finding
from kinesumer.ops.group.shard_reads import PacedReader, sample_shards
from kinesumer.ops.group.snapshot import read_known_snapshot

GENERAL_CHECKS = (
    permission_probe.CREDENTIALS,
    permission_probe.PERMISSIONS,
    permission_probe.STATE_STORE,
)
APP_CHECKS = (
    problems.FAILURES,
    problems.INCIDENTS,
    problems.MEMBERS,
    ownership.HASH_SPACE,
    ownership.ORPHAN_SHARDS,
    ownership.HAND_OVERS,
    problems.POISON_RECORDS,
    members.FLEETS,
    members.PLAN,
    streams.POSITIONS,
    streams.LAG,
    streams.RETENTION,
    streams.HOT_SHARDS,
)
APP_CHECK_FUNCTIONS: tuple[Callable[[AppObservation], Iterator[Finding]], ...] = (
    lambda app: problems.find_problems(app.fleet, app.app),
    streams.growing_lags,
    members.member_problems,
    members.operator_pauses,
    members.split_fleet,
    members.waiting_plans,
    ownership.uncovered_hash_keys,
    ownership.orphan_shards,
    ownership.stuck_hand_overs,
    ownership.repeated_claims,
    streams.invalid_positions,
    streams.expiring_records,
    streams.hot_shards,
    streams.throttled_shards,
    streams.idle_clients,
)


class DoctorOptions(NamedTuple):
    """The table, app and streams to check."""

    table: str
    app: str | None
    streams: Sequence[str]
    roles: Roles
    seconds: float  # the time between the two observations of an app
    probes: Sequence[str] = ()  # further actions to try: "put", "fan-out"


class DoctorResult(NamedTuple):
    """The findings, and what could be checked."""

    caller: CallerIdentity | None
    checks: tuple[str, ...]
    examined: bool  # whether the app's rows could be read
    answered: bool  # whether the state store answered, even with an error
    findings: list[Finding]


async def run_checks(clients: ClientFactory, options: DoctorOptions) -> DoctorResult:
    """Probe the permissions, observe the app, and return the findings, worst first.

    Raises KinesumerError if the table has no rows of the app.
    """
    log = ProbeLog()
    caller, ahead = await _read_caller(clients, log)
    limits = await log.attempt("kinesis:DescribeLimits", "*", read_limits(clients))
    store = await log.attempt(
        "dynamodb", "", open_operator_store(clients, options.table)
    )
    observed, registered = None, None
    if store is not None:
        await probe_table(log, store, options.table)
        allowed = {probe.action for probe in log.probes if probe.error is None}
        arns: list[str] = []
        if (
            options.app is not None
            and {"dynamodb:GetItem", "dynamodb:Query"} <= allowed
        ):
            observed = await _observe(clients, store, options, options.app, log)
            arns = [stream.arn for stream in observed.second.streams]
        else:
            await _probe_streams(clients, options, options.streams, log)
        names = log.usable([*arns, *options.streams])
        registered = await observe_consumers(
            clients, options.roles, names, store, options.table, log
        )
    probes = log.probes
    findings = [
        *permission_probe.unusable_store(options.table, probes),
        *permission_probe.failed_probes(probes),
        *permission_probe.clock_skew(ahead or 0.0, probes),
        *streams.shard_quota(limits),
    ]
    if observed is not None:
        findings += [f for check in APP_CHECK_FUNCTIONS for f in check(observed)]
    if registered is not None:
        findings += streams.unused_consumers(registered)
        findings += streams.full_streams(registered)
    findings.sort(key=lambda finding: -finding.severity)
    checks = [
        *GENERAL_CHECKS,
        *([permission_probe.CLOCKS] if ahead is not None else []),
        *([streams.LIMITS] if limits is not None else []),
        *(APP_CHECKS if observed else []),
        *([problems.FAN_OUT] if observed or registered else []),
    ]
    is_down = any(isinstance(probe.error, StoreUnavailableError) for probe in probes)
    examined = observed is not None
    return DoctorResult(
        caller, tuple(checks), examined, examined or not is_down, findings
    )


async def _read_caller(
    clients: ClientFactory, log: ProbeLog
) -> tuple[CallerIdentity | None, float | None]:
    # The first call also opens a connection, so the second call measures the clock.
    action, caller = "sts:GetCallerIdentity", None
    if await log.attempt(action, "-", read_caller(clients)) is not None:
        before = time.time()
        caller = await log.attempt(action, "-", read_caller(clients))
    return caller, caller and seconds_ahead(caller.now, before, time.time())


async def _probe_streams(
    clients: ClientFactory,
    options: DoctorOptions,
    names: Sequence[str],
    log: ProbeLog,
    members: Sequence[MemberRow] = (),
) -> None:
    users = members if "fan-out" in options.probes else ()
    probes = (
        probe_stream(
            log,
            clients,
            options.roles.stream(name),
            puts="put" in options.probes,
            consumers=[use.consumer for use in uses_of_stream(users, name)],
        )
        for name in names
    )
    await asyncio.gather(*probes)


async def _observe(
    clients: ClientFactory,
    store: DynamoStateStore,
    options: DoctorOptions,
    app: str,
    log: ProbeLog,
) -> AppObservation:
    """Observe an app and its streams twice."""
    began = time.monotonic()
    first = await read_known_snapshot(store, app, options.table)
    arns = [stream.arn for stream in first.streams]
    names = list(dict.fromkeys([*arns, *options.streams]))
    await _probe_streams(clients, options, names, log, first.alive)
    readable = log.usable(names)
    # AWS allows five reads of a shard a second. A client that has caught up uses four
    # of them, so the doctor reads only as often as an idle client.
    reader = PacedReader(IDLE_SECONDS)
    shards = {arn: first.shards[arn] for arn in arns if arn in readable}
    heartbeats = HeartbeatObserver(app)
    # Heartbeats and shards are watched at the same time, since a person waits.
    samples, _ = await asyncio.gather(
        sample_shards(clients, shards, options.roles, sample_first, reader),
        heartbeats.watch(store, first),
    )
    await asyncio.sleep(max(0.0, began + options.seconds - time.monotonic()))
    second = await read_known_snapshot(store, app, options.table)
    seconds = time.monotonic() - began
    (observed, errors), ages = await asyncio.gather(
        observe_streams(
            clients, options.roles, second, readable, samples.values, reader
        ),
        heartbeats.watch(store, second),
    )
    failed = [*samples.problems.items(), *errors.items()]
    log.probes += [Probe("kinesis", arn, error) for arn, error in failed]
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
