"""Try every action that a client needs, without any change, and check the clock."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, TypeVar

from kinesumer.aws.account import DryRuns
from kinesumer.aws.dynamodb import DynamoStateStore
from kinesumer.aws.kinesis import KinesisSource, open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.stream_consumers import StreamConsumer, StreamConsumers
from kinesumer.aws.table_streams import open_table_source
from kinesumer.errors import (
    AccessDeniedError,
    CredentialsError,
    FatalError,
    KinesumerError,
    StateStoreMissingError,
    StateStoreSchemaError,
    StreamMissingError,
)
from kinesumer.model.rows import Key
from kinesumer.model.streams import Start, Stream
from kinesumer.model.table_streams import is_table_stream
from kinesumer.ops.group.problems import Check, Finding, Severity
from kinesumer.ports import Compare, Write

T = TypeVar("T")

CREDENTIALS, PERMISSIONS = Check("credentials"), Check("permissions")
STATE_STORE, CLOCKS = Check("state store"), Check("clocks")
# Without DryRun, a put stores a record, and a subscription ends that of a client.
NO_DRY_RUN = (
    "Kinesis's DryRun isn't possible here: upgrade botocore, use an endpoint of AWS, "
    "or allow kinesis:GetRecords"
)
# No row has this key, so that conditions on the row are always false.
UNUSED_KEY = Key("doctor", "doctor")
NEVER = Compare("pk", "exists")
# Actions that only the doctor needs. They may fail: many networks can't reach STS.
OPTIONAL = {
    "dynamodb:Scan": "without it, unused stream consumers aren't found",
    "kinesis:DescribeLimits": "without it, shard limits aren't checked",
    "kinesis:ListStreamConsumers": "without it, unused stream consumers aren't found",
    "sts:GetCallerIdentity": "without it, clocks aren't compared",
}
# Errors that ``unusable_store()`` reports.
TABLE_ERRORS = (CredentialsError, StateStoreMissingError, StateStoreSchemaError)
# AWS rejects requests if the client's clock differs by five minutes.
CLOCK_SECONDS = tuple(zip((5.0, 60.0, 240.0), Severity, strict=True))
_REJECTED = re.compile(r"RequestTimeTooSkewed|signature (expired|not yet)", re.I)
CLOCK_ADVICE = "synchronize the machine's clock by NTP (chrony, systemd-timesyncd)"


class Probe(NamedTuple):
    """The result of trying an action."""

    action: str
    resource: str
    error: KinesumerError | None = None


class ProbeLog:
    """The results of trying actions."""

    def __init__(self) -> None:
        self.probes: list[Probe] = []

    def usable(self, names: Iterable[str]) -> list[str]:
        """Return each name once of which no action has failed."""
        failed = {probe.resource for probe in self.probes if probe.error}
        return [name for name in dict.fromkeys(names) if name not in failed]

    async def attempt(self, action: str, resource: str, call: Awaitable[T]) -> T | None:
        """Return the result of a call; None if it fails."""
        try:
            result = await call
        except KinesumerError as error:
            self.probes.append(Probe(action, resource, error))
            return None
        self.probes.append(Probe(action, resource))
        return result


async def probe_table(log: ProbeLog, store: DynamoStateStore, table: str) -> None:
    """Try all table actions of a client; false conditions prevent the writes."""
    name = f"table {table}"
    await log.attempt("dynamodb:DescribeTable", name, store.verify())
    error = log.probes[-1].error
    if error is None or isinstance(error, AccessDeniedError):
        index = store.query_not_updated_since(UNUSED_KEY.pk, "0")
        update = Write(UNUSED_KEY, NEVER, {"seen": True})
        await log.attempt("dynamodb:GetItem", name, store.get(UNUSED_KEY))
        await log.attempt("dynamodb:Query", name, store.query(UNUSED_KEY.pk))
        await log.attempt("dynamodb:Query", f"{name}, its index", index)
        for action, write in (
            ("dynamodb:UpdateItem", update),
            ("dynamodb:PutItem", update._replace(replace=True)),
            ("dynamodb:DeleteItem", Write(UNUSED_KEY, NEVER, delete=True)),
        ):
            await log.attempt(action, name, store.write(write))


async def probe_stream(
    log: ProbeLog,
    clients: ClientFactory,
    stream: Stream,
    *,
    puts: bool,
    consumers: Iterable[str],
) -> None:
    """Try all stream actions of a client; skip calls that depend on a failed call.

    ``puts`` also tries to put, and ``consumers`` are stream consumers to subscribe to.
    """
    name = stream.name
    if is_table_stream(name):
        await _probe_table_stream(log, clients, stream)
        return
    source = await log.attempt("kinesis", name, open_source(clients, stream))
    if source is None:
        return
    await log.attempt("kinesis:DescribeStreamSummary", name, source.describe())
    listing = await log.attempt("kinesis:ListShards", name, source.list_shards())
    open_shard = next((s.shard_id for s in listing or () if not s.closed), None)
    if open_shard is None:
        return
    iterator = await log.attempt(
        "kinesis:GetShardIterator", name, source.get_iterator(open_shard, Start.LATEST)
    )
    if iterator is not None:
        read = _try_to_read(source, iterator)
        is_dry = await log.attempt("kinesis:GetRecords", name, read)
        tries = DryRuns(source) if is_dry else None
        if puts:
            await log.attempt("kinesis:PutRecords", name, _try_to_put(tries))
        for consumer in consumers:
            found = await StreamConsumers(source).find(consumer)
            begin = _try_to_subscribe(tries, found, open_shard)
            await log.attempt("kinesis:SubscribeToShard", name, begin)


async def _probe_table_stream(
    log: ProbeLog, clients: ClientFactory, stream: Stream
) -> None:
    """Try all actions of a client that reads the stream of a table."""
    name, opening = stream.name, open_table_source(clients, stream)
    source = await log.attempt("dynamodb:DescribeTable", name, opening)
    if source is None:
        return
    listing = await log.attempt("dynamodb:DescribeStream", name, source.list_shards())
    open_shard = next((s.shard_id for s in listing or () if not s.closed), None)
    if open_shard is None:
        return
    iterator = await log.attempt(
        "dynamodb:GetShardIterator", name, source.get_iterator(open_shard, Start.LATEST)
    )
    if iterator is not None:
        reading = source.get_records(iterator, 1)
        await log.attempt("dynamodb:GetRecords", name, reading)


async def _try_to_read(source: KinesisSource, iterator: str) -> bool:
    """Read without effect if possible, else a page. Return whether it was possible."""
    with suppress(FatalError):  # if it isn't due to DryRun, the read fails as well
        if await DryRuns(source).read(iterator):
            return True
    await source.get_records(iterator, 1)
    return False


async def _try_to_put(tries: DryRuns | None) -> None:
    if tries is None:
        raise KinesumerError(NO_DRY_RUN)
    await tries.put(b"")


async def _try_to_subscribe(
    tries: DryRuns | None, consumer: StreamConsumer | None, shard_id: str
) -> None:
    if tries is None:
        raise KinesumerError(NO_DRY_RUN)
    if consumer is None:
        raise KinesumerError("it isn't registered: start a client, or register it")
    await tries.subscribe(consumer.arn, shard_id)


def _distinct_errors(probes: Iterable[Probe]) -> list[tuple[Probe, KinesumerError]]:
    """Return the failed probes without those that repeat an error text."""
    failed: dict[str, tuple[Probe, KinesumerError]] = {}
    for probe in probes:
        if probe.error is not None:
            failed.setdefault(str(probe.error), (probe, probe.error))
    return list(failed.values())


def failed_probes(probes: Iterable[Probe]) -> Iterator[Finding]:
    """Yield findings about denied actions, missing streams, and untried actions."""
    for probe, error in _distinct_errors(probes):
        if isinstance(error, AccessDeniedError):
            yield _denied(error)
        elif isinstance(error, StreamMissingError):
            yield PERMISSIONS.critical(
                probe.resource,
                str(error),
                "correct its name, account or region, or --role; if it was deleted, "
                "remove it from consume()",
            )
        elif not isinstance(error, TABLE_ERRORS):
            without = OPTIONAL.get(probe.action)
            yield (PERMISSIONS.note if without else PERMISSIONS.warning)(
                f"{probe.action} on {probe.resource}",
                f"couldn't be tested: {error}" + (f"; {without}" if without else ""),
                "run the doctor again; if this persists, follow the error's text",
            )


def _denied(error: AccessDeniedError) -> Finding:
    subject = f"{error.action} on {error.resource}"
    if optional := OPTIONAL.get(error.action):
        advice = "allow it to operators (schema/iam/operator.json)"
        return PERMISSIONS.note(subject, f"not allowed: {optional}", advice)
    reason = f": {error.reason}" if error.reason else ""
    advice = error.advice or (
        f"allow {error.action} on it for the credentials in use, or name the role "
        "that reads the stream with --role; schema/iam/ has the policies"
    )
    return PERMISSIONS.critical(subject, f"not allowed{reason}", advice)


def unusable_store(table: str, probes: Iterable[Probe]) -> Iterator[Finding]:
    """Yield one finding for missing credentials, and one for an unusable table."""
    for _, error in _distinct_errors(probes):
        if isinstance(error, CredentialsError):
            advice = "give the process credentials, and run the doctor again"
            yield CREDENTIALS.critical("AWS credentials", str(error), advice)
        elif isinstance(error, TABLE_ERRORS):
            advice = "check --table and --region, or create the table as described"
            yield STATE_STORE.critical(f"table {table}", str(error), advice)


def seconds_ahead(service: float, before: float, after: float) -> float:
    """Return the least seconds by which this clock is ahead of AWS; negative if behind.

    ``service`` is AWS's time in whole seconds, rounded down. The others are this
    machine's times before and after the call.
    """
    lower = before - (service + 1)
    return lower if lower > 0 else min(after - service, 0.0)


def clock_skew(ahead: float, probes: Iterable[Probe]) -> Iterator[Finding]:
    """Yield a finding if the clocks differ or AWS rejects this clock's signatures."""
    subject = "this machine's clock"
    for probe in probes:
        if probe.error and _REJECTED.search(str(probe.error)):
            text = f"AWS rejects the time of requests: {probe.error}"
            yield CLOCKS.critical(subject, text, CLOCK_ADVICE)
            return
    seconds = abs(ahead)
    reached = [severity for least, severity in CLOCK_SECONDS if seconds >= least]
    side = "ahead of" if ahead > 0 else "behind"
    if reached:
        yield Finding(
            CLOCKS,
            reached[-1],
            subject,
            f"at least {seconds:.0f} s {side} AWS's; leases, heartbeats and positions "
            "don't depend on it; signatures of requests, start times and logs do",
            f"{CLOCK_ADVICE}; AWS rejects requests from five minutes on",
        )
