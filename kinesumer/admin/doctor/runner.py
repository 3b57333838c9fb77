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
from kinesumer.admin.doctor.observation import Seen
from kinesumer.admin.doctor.permission_probe import Trials, try_stream, try_table
from kinesumer.admin.doctor.streams import Streams
from kinesumer.admin.status import Hearts
from kinesumer.aws.account import Caller, read_caller, read_limits
from kinesumer.aws.dynamodb import open_store
from kinesumer.coordination.startup_checks import living_go_clients
from kinesumer.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kinesumer.admin.connect import Roles
    from kinesumer.admin.doctor.finding import Finding
    from kinesumer.admin.doctor.permission_probe import Trial
    from kinesumer.aws.dynamodb import DynamoStateStore
    from kinesumer.aws.session import Clients

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
CHECKS_OF_AN_APP: tuple[Callable[[Seen], Iterator[Finding]], ...] = (
    members.unwell,
    members.paused,
    split_fleet.several,
    hash_space.uncovered,
    orphans.orphans,
    hand_overs.stuck,
    positions.astray,
    retention.running_out,
    capacity.hot,
    capacity.crowded,
    capacity.idle,
)


class Wanted(NamedTuple):
    """What is to be examined."""

    table: str
    app: str | None
    streams: Sequence[str]
    roles: Roles
    seconds: float
    """How far two looks at an app lie apart."""


class Result(NamedTuple):
    """What was found, and how far the examination got."""

    caller: Caller | None
    checks: tuple[str, ...]
    examined: bool
    """Whether the app's rows could be looked at."""
    answered: bool
    """Whether the state store answered at all, were it to refuse."""
    findings: list[Finding]


async def examine(clients: Clients, wanted: Wanted) -> Result:
    """Try everything, look twice, and return what was found, the worst first.

    Raises KinesumerError if the table knows no such app.
    """
    trials = Trials()
    caller, reading = await _caller(clients, trials)
    found = await trials.attempt("kinesis:DescribeLimits", "*", read_limits(clients))
    made = trials.made
    store = await trials.attempt("dynamodb", "", open_store(clients, wanted.table))
    seen = None
    if store is not None:
        table_trials = await try_table(store, wanted.table)
        made += table_trials
        if wanted.app is not None and _can_be_read(table_trials):
            seen = await _see(clients, store, wanted, wanted.app, made)
        else:
            await _try_streams(clients, wanted, wanted.streams, made)
    findings = [
        *state_store.unusable(wanted.table, made),
        *permission_probe.denied(made),
        *clock_skew.skewed(reading, made),
        *capacity.account_full(found),
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
    return Result(caller, tuple(checks), seen is not None, answered, findings)


def _can_be_read(table_trials: Sequence[Trial]) -> bool:
    """Tell whether rows can be read, whatever else isn't allowed."""
    worked = {trial.action for trial in table_trials if trial.error is None}
    return {"dynamodb:GetItem", "dynamodb:Query"} <= worked


async def _caller(
    clients: Clients, trials: Trials
) -> tuple[Caller | None, clock_skew.Reading | None]:
    # The first call opens connections, which takes time: the second one is read.
    if await _who(clients, trials) is None:
        return None, None
    before = time.time()
    caller = await _who(clients, trials)
    if caller is None:
        return None, None
    return caller, clock_skew.Reading(caller.now, before, time.time())


async def _who(clients: Clients, trials: Trials) -> Caller | None:
    return await trials.attempt("sts:GetCallerIdentity", "-", read_caller(clients))


async def _try_streams(
    clients: Clients, wanted: Wanted, names: Sequence[str], made: list[Trial]
) -> set[str]:
    """Try each stream; return those that can be read."""
    tried = await asyncio.gather(
        *(try_stream(clients, wanted.roles.stream(name)) for name in names)
    )
    for trials in tried:
        made += trials
    return {
        name
        for name, trials in zip(names, tried, strict=True)
        if not any(trial.error for trial in trials)
    }


async def _see(
    clients: Clients,
    store: DynamoStateStore,
    wanted: Wanted,
    app: str,
    made: list[Trial],
) -> Seen:
    """Look at an app and its streams, twice."""
    began = time.monotonic()
    first = await snapshot.take_known(store, app, wanted.table)
    named = dict.fromkeys([*(stream.arn for stream in first.streams), *wanted.streams])
    readable = await _try_streams(clients, wanted, list(named), made)
    streams = Streams(clients, wanted.roles, readable)
    early = await streams.look(first)
    hearts = Hearts(app)
    await hearts.watch(store, first)
    await asyncio.sleep(max(0.0, began + wanted.seconds - time.monotonic()))
    second = await snapshot.take_known(store, app, wanted.table)
    seconds = time.monotonic() - began
    silent = await hearts.watch(store, second)
    late = await streams.look_closely(second, early)
    made += streams.failed
    go_rows = await store.query(f"client#{app}", consistent=True)
    return Seen(
        app=app,
        first=first,
        second=second,
        seconds=seconds,
        silent=silent,
        streams=late,
        go_clients=living_go_clients(go_rows, time.time()),
    )
