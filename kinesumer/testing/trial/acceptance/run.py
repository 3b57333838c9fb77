"""Run all checks, one part after the other, and collect their results."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kinesumer.aws.dynamodb import ensure_table, open_store
from kinesumer.errors import KinesumerError
from kinesumer.model.streams import Stream
from kinesumer.testing.trial.acceptance import client_checks as clients
from kinesumer.testing.trial.acceptance.account import Account, Plan
from kinesumer.testing.trial.acceptance.check import (
    Check,
    CheckFailedError,
    CheckSkippedError,
    Result,
    Verdict,
)
from kinesumer.testing.trial.acceptance.contract.consumers import CONSUMER_CHECKS
from kinesumer.testing.trial.acceptance.contract.shard_ends import END_CHECKS
from kinesumer.testing.trial.acceptance.contract.source import SOURCE_CHECKS
from kinesumer.testing.trial.acceptance.contract.store import (
    STORE_CHECKS,
    Stores,
)
from kinesumer.testing.trial.acceptance.contract.table_shard_ends import (
    TABLE_END_CHECKS,
)
from kinesumer.testing.trial.acceptance.contract.table_source import TABLE_CHECKS
from kinesumer.testing.trial.processes import Names, Processes, TrialStream
from kinesumer.testing.trial.run import Plain, Trial, TrialOptions
from kinesumer.testing.trial.spark_process import missing_spark

T = TypeVar("T")
CHECK_SECONDS = 600.0
# Checks of streams that run at the same time, since they wait for AWS most of the time.
CONCURRENT = 4
MINUTES = 20  # and as long again with fan-out
TABLE_MINUTES = 15
STORE, STREAMS, CONSUMERS = "state store", "streams", "stream consumers"
TABLES = "table streams"
CLIENTS, OTHER_ACCOUNT, GROUP = "clients", "other account", "group"
GROUP_CHECK = "three processes lose nothing and keep the order"
SPARK_CHECK = "a Spark query has each record once and in order"
PAIR = 2  # streams of the group, and shards of each


class Options(NamedTuple):
    """The options of a run."""

    fan_out: bool = False
    tables: bool = False
    keep: bool = False
    # Patterns of checks to skip, as "part: name".
    skip: tuple[str, ...] = ()


def plan(options: Options, *, has_role: bool) -> Plan:
    """Return what a run creates at most."""
    checks: list[Check[Any]] = [*SOURCE_CHECKS, *END_CHECKS, *clients.CLIENT_CHECKS]
    if has_role:
        checks += clients.OTHER_ACCOUNT_CHECKS
    fan_out: list[Check[Any]] = []
    if options.fan_out:
        fan_out = [*CONSUMER_CHECKS, *clients.FAN_OUT_CLIENT_CHECKS]
    shards = sum(check.shards for check in [*checks, *fan_out])
    # One check registers a consumer for each of six positions.
    consumer_shards = sum(check.shards for check in fan_out) + 6 * bool(fan_out)
    return Plan(
        # In the group, a split makes two shards, and a merge one.
        shards=shards + PAIR * PAIR + 2 + 1,
        consumer_shards=consumer_shards,
        minutes=MINUTES * (1 + options.fan_out) + TABLE_MINUTES * options.tables,
        tables=options.tables,
    )


@dataclass
class Run:
    """One run of all checks. ``say`` prints a line."""

    account: Account
    options: Options
    say: Callable[[str], None]
    results: list[Result] = field(default_factory=list)

    async def all(self) -> None:
        """Make all checks. A check that fails does not end the run."""
        account, prefix = self.account, self.account.names.prefix
        await account.tables.create(account.names.table, account.names.tags)
        store = await open_store(account.clients, account.names.table)
        await ensure_table(store, wait_seconds=180)
        absent = await open_store(account.clients, f"{prefix}-absent")
        for number, check in enumerate(STORE_CHECKS):
            stores = Stores(store, absent, f"{number}")
            await self._check(STORE, check.name, check.run, stores)
        await self._checks_of_streams(STREAMS, "source", [*SOURCE_CHECKS, *END_CHECKS])
        if self.options.tables:
            # AWS permits only ten calls of DescribeStream a second.
            await self._in_turn(TABLES, TABLE_CHECKS, account.tables)
            await self._in_turn(TABLES, TABLE_END_CHECKS, account.tables)
        else:
            self._skip(TABLES, "streams of DynamoDB tables", "--tables was not given")
        if self.options.fan_out:
            await self._checks_of_streams(CONSUMERS, "consumers", CONSUMER_CHECKS)
            await self._in_turn(CLIENTS, clients.FAN_OUT_CLIENT_CHECKS, account)
        else:
            self._skip(CONSUMERS, "enhanced fan-out", "--fan-out was not given")
        await self._in_turn(CLIENTS, clients.CLIENT_CHECKS, account)
        await self._in_turn(OTHER_ACCOUNT, clients.OTHER_ACCOUNT_CHECKS, account)
        await self._group()

    async def _checks_of_streams(
        self, part: str, short: str, checks: Sequence[Check[[Any, str]]]
    ) -> None:
        streams, slots = self.account.streams, asyncio.Semaphore(CONCURRENT)

        async def one(number: int, check: Check[[Any, str]]) -> None:
            name = f"{self.account.names.prefix}-{short}-{number}"
            async with slots:
                await self._check(part, check.name, check.run, streams, name)
                await self._remove(name)

        async with asyncio.TaskGroup() as tasks:
            for number, check in enumerate(checks):
                tasks.create_task(one(number, check))

    async def _in_turn(
        self, part: str, checks: Sequence[Check[[T, str]]], of: T
    ) -> None:
        for check in checks:
            name = f"{self.account.names.prefix}-{check.name.replace(' ', '-')}"
            await self._check(part, check.name, check.run, of, name)
            await self._remove(name)

    async def _remove(self, of_check: str) -> None:
        """Delete a check's streams now, since an account has a limit of shards.

        A check that needs several streams appends a hyphen and more to the name.
        """
        if self.options.keep:
            return
        for one in self.account.resources:
            for name in list(one.created):
                if f"{name}-".startswith(f"{of_check}-"):
                    await one.begin_deleting(name)

    async def _group(self) -> None:
        missing = missing_spark()
        has_spark = missing is None and not self._is_skipped(GROUP, SPARK_CHECK)
        found: list[Trial] = []

        async def check() -> dict[str, str]:
            found.append(await self._run_group(spark=has_spark))
            verdict = found[0].verdict
            _fail_for(verdict.faults(of_time=False))
            return {line.what.strip(): line.measured for line in verdict.lines}

        async def spark() -> None:
            if missing is not None:
                raise CheckSkippedError(f"Spark isn't installed: {missing}")
            if not found:
                raise CheckFailedError("the group that it reads beside didn't finish")
            _fail_for(found[0].spark_verdict.faults())

        await self._check(GROUP, GROUP_CHECK, check)
        await self._check(GROUP, SPARK_CHECK, spark)

    async def _run_group(self, *, spark: bool) -> Trial:
        """Create streams, and run a group of processes through the scenario."""
        account, streams = self.account, []
        for number in range(PAIR):
            name = f"{account.names.prefix}-group-{number}"
            await account.streams.create(name, PAIR)
            arn = (await (await account.streams.source(name)).describe()).arn
            streams.append(TrialStream(arn, f"stream {number}", Stream(name)))
        if self.options.tables:
            name = f"{account.names.prefix}-group"
            await account.tables.create_streamed(name)
            arn = await (await account.tables.source(name)).arn()
            streams.append(TrialStream(arn, "table", Stream(table=name)))
        region = {"AWS_REGION": account.region, "AWS_DEFAULT_REGION": account.region}
        options = TrialOptions(seconds=60, clients=3, rate=200, spark=spark)
        with tempfile.TemporaryDirectory(prefix="kinesumer-acceptance-") as directory:
            names = Names("group", "group-spark", account.names.table)
            environment = os.environ | region
            with Processes(Path(directory), environment, names) as processes:
                screen = Plain(self.say)
                trial = Trial(options, processes, screen, account.clients, streams)
                await trial.run()
        return trial

    def _is_skipped(self, part: str, name: str) -> bool:
        return any(fnmatchcase(f"{part}: {name}", one) for one in self.options.skip)

    def _skip(self, part: str, name: str, reason: str) -> None:
        self._add(Result(part, name, "skipped", 0.0, reason, {}))

    async def _check(
        self, part: str, name: str, check: Callable[..., Awaitable[Any]], *of: Any
    ) -> None:
        if self._is_skipped(part, name):
            self._skip(part, name, "by --skip")
            return
        began = time.monotonic()
        figures: dict[str, Any] = {}
        verdict: Verdict = "passed"
        reason = ""
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                figures = await check(*of) or {}
        except CheckSkippedError as error:
            verdict, reason = "skipped", str(error)
        except TimeoutError:
            verdict, reason = "failed", f"it did not end within {CHECK_SECONDS:g} s"
        except Exception as error:
            verdict, reason = "failed", error_text(error)
        seconds = time.monotonic() - began
        self._add(Result(part, name, verdict, seconds, reason, figures))

    def _add(self, result: Result) -> None:
        self.results.append(result)
        self.say(result.line)


def error_text(error: BaseException) -> str:
    """Return the text of an error, or those of a group's errors."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(error_text, error.exceptions))
    text = " ".join(str(error).split())
    is_own = isinstance(error, (KinesumerError, CheckFailedError))
    return text if is_own else f"{type(error).__name__}: {text}"


def _fail_for(faults: Iterable[str]) -> None:
    if text := "; ".join(faults):
        raise CheckFailedError(text)
