"""All that ``kinesumer doctor`` looks at, and what it finds."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin import snapshot
from kinesumer.admin.doctor import (
    capacity,
    clock_skew,
    hand_overs,
    hash_space,
    members,
    orphans,
    permission_probe,
    positions,
    retention,
    split_fleet,
    state_store,
)
from kinesumer.admin.doctor.observation import AppObservation
from kinesumer.admin.doctor.permission_probe import ProbeLog, probe_stream, probe_table
from kinesumer.admin.doctor.streams import StreamObserver
from kinesumer.admin.status import HeartbeatObserver
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

OF_ALL = ("credentials", "permissions", "state store")
OF_AN_APP = (
    members.CHECK,
    hash_space.CHECK,
    orphans.CHECK,
    hand_overs.CHECK,
    split_fleet.CHECK,
    positions.CHECK,
    retention.CHECK,
    "hot shards",
)
CHECKS_OF_AN_APP: tuple[Callable[[AppObservation], Iterator[Finding]], ...] = (
    members.member_problems,
    members.operator_pauses,
    split_fleet.split_fleet,
    hash_space.uncovered_hash_keys,
    orphans.orphan_shards,
    hand_overs.stuck_hand_overs,
    positions.invalid_positions,
    retention.expiring_records,
    capacity.hot_shards,
    capacity.throttled_shards,
    capacity.idle_clients,
)


class DoctorOptions(NamedTuple):
    """What is to be examined."""

    table: str
    app: str | None
    streams: Sequence[str]
    roles: Roles
    seconds: float
    """How far two looks at an app lie apart."""


class DoctorResult(NamedTuple):
    """What was found, and how far the examination got."""

    caller: CallerIdentity | None
    checks: tuple[str, ...]
    examined: bool
    """Whether the app's rows could be looked at."""
    answered: bool
    """Whether the state store answered at all, were it to refuse."""
    findings: list[Finding]


async def run_checks(clients: ClientFactory, wanted: DoctorOptions) -> DoctorResult:
    """Try everything, look twice, and return what was found, the worst first.

    Raises KinesumerError if the table knows no such app.
    """
    trials = ProbeLog()
    caller, reading = await _caller(clients, trials)
    found = await trials.attempt("kinesis:DescribeLimits", "*", read_limits(clients))
    made = trials.made
    store = await trials.attempt("dynamodb", "", open_store(clients, wanted.table))
    seen = None
    if store is not None:
        table_trials = await probe_table(store, wanted.table)
        made += table_trials
        if wanted.app is not None and _can_be_read(table_trials):
            seen = await _see(clients, store, wanted, wanted.app, made)
        else:
            await _try_streams(clients, wanted, wanted.streams, made)
    findings = [
        *state_store.unusable_store(wanted.table, made),
        *permission_probe.failed_probes(made),
        *clock_skew.clock_skew(reading, made),
        *capacity.shard_quota(found),
    ]
    if seen is not None:
        findings += [found for check in CHECKS_OF_AN_APP for found in check(seen)]
    findings.sort(key=lambda finding: -finding.severity)
    checks = [*OF_ALL, *(OF_AN_APP if seen else [])]
    if found is not None:
        checks.insert(len(OF_ALL), capacity.CHECK)
    if reading is not None:
        checks.insert(len(OF_ALL), "clocks")
    answered = seen is not None or not any(
        isinstance(trial.error, StoreUnavailableError) for trial in made
    )
    return DoctorResult(caller, tuple(checks), seen is not None, answered, findings)


def _can_be_read(table_trials: Sequence[Probe]) -> bool:
    """Tell whether rows can be read, whatever else isn't allowed."""
    worked = {trial.action for trial in table_trials if trial.error is None}
    return {"dynamodb:GetItem", "dynamodb:Query"} <= worked


async def _caller(
    clients: ClientFactory, trials: ProbeLog
) -> tuple[CallerIdentity | None, clock_skew.ClockReading | None]:
    # The first call opens connections, which takes time: the second one is read.
    if await _who(clients, trials) is None:
        return None, None
    before = time.time()
    caller = await _who(clients, trials)
    if caller is None:
        return None, None
    return caller, clock_skew.ClockReading(caller.now, before, time.time())


async def _who(clients: ClientFactory, trials: ProbeLog) -> CallerIdentity | None:
    return await trials.attempt("sts:GetCallerIdentity", "-", read_caller(clients))


async def _try_streams(
    clients: ClientFactory,
    wanted: DoctorOptions,
    names: Sequence[str],
    made: list[Probe],
) -> set[str]:
    """Try each stream; return those that can be read."""
    tried = await asyncio.gather(
        *(probe_stream(clients, wanted.roles.stream(name)) for name in names)
    )
    for trials in tried:
        made += trials
    return {
        name
        for name, trials in zip(names, tried, strict=True)
        if not any(trial.error for trial in trials)
    }


async def _see(
    clients: ClientFactory,
    store: DynamoStateStore,
    wanted: DoctorOptions,
    app: str,
    made: list[Probe],
) -> AppObservation:
    """Look at an app and its streams, twice."""
    began = time.monotonic()
    first = await snapshot.take_known(store, app, wanted.table)
    named = dict.fromkeys([*(stream.arn for stream in first.streams), *wanted.streams])
    readable = await _try_streams(clients, wanted, list(named), made)
    streams = StreamObserver(clients, wanted.roles, readable)
    early = await streams.look(first)
    hearts = HeartbeatObserver(app)
    await hearts.watch(store, first)
    await asyncio.sleep(max(0.0, began + wanted.seconds - time.monotonic()))
    second = await snapshot.take_known(store, app, wanted.table)
    seconds = time.monotonic() - began
    silent = await hearts.watch(store, second)
    late = await streams.look_closely(second, early)
    made += streams.failed
    go_rows = await store.query(f"client#{app}", consistent=True)
    return AppObservation(
        app=app,
        first=first,
        second=second,
        seconds=seconds,
        silent=silent,
        streams=late,
        go_clients=live_go_clients(go_rows, time.time()),
    )
