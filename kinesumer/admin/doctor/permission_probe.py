"""Try every action that a client needs, without changing anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kinesumer.admin.doctor.finding import Finding, Severity
from kinesumer.aws.kinesis import open_source
from kinesumer.errors import (
    AccessDeniedError,
    CredentialsError,
    KinesumerError,
    StateStoreMissingError,
    StateStoreSchemaError,
    StreamMissingError,
)
from kinesumer.model.rows import Key
from kinesumer.model.streams import Start
from kinesumer.ports import Compare, Write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator

    from kinesumer.aws.dynamodb import DynamoStateStore
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.streams import Stream

    T = TypeVar("T")


UNUSED_KEY = Key("doctor", "doctor")
"""The key of a row that doesn't exist, so that conditions on it never hold."""
NEVER = Compare("pk", "exists")


OPTIONAL = {
    "kinesis:DescribeLimits": "without it, shard limits aren't checked",
    "sts:GetCallerIdentity": "without it, clocks aren't compared",
}
"""Actions that only the doctor needs; many networks can't reach STS."""
TABLE_ERRORS = (CredentialsError, StateStoreMissingError, StateStoreSchemaError)
"""Errors that ``unusable_store()`` reports."""


class Probe(NamedTuple):
    """The result of trying an action."""

    action: str
    resource: str
    error: KinesumerError | None = None


class ProbeLog:
    """The results of trying actions."""

    def __init__(self) -> None:
        self.probes: list[Probe] = []

    async def attempt(self, action: str, resource: str, call: Awaitable[T]) -> T | None:
        """Return the result of a call; None if it fails."""
        try:
            result = await call
        except KinesumerError as error:
            self.probes.append(Probe(action, resource, error))
            return None
        self.probes.append(Probe(action, resource))
        return result


async def probe_table(store: DynamoStateStore, table: str) -> list[Probe]:
    """Try all that a client does with the table; conditions reject the writes."""
    log, name = ProbeLog(), f"table {table}"
    await log.attempt("dynamodb:DescribeTable", name, store.verify())
    error = log.probes[-1].error
    if error is None or isinstance(error, AccessDeniedError):
        index = store.query_not_updated_since(UNUSED_KEY.pk, "0")
        update = Write(UNUSED_KEY, NEVER, {"seen": True})
        put = update._replace(replace=True)
        delete = Write(UNUSED_KEY, NEVER, delete=True)
        await log.attempt("dynamodb:GetItem", name, store.get(UNUSED_KEY))
        await log.attempt("dynamodb:Query", name, store.query(UNUSED_KEY.pk))
        await log.attempt("dynamodb:Query", f"{name}, its index", index)
        await log.attempt("dynamodb:UpdateItem", name, store.write(update))
        await log.attempt("dynamodb:PutItem", name, store.write(put))
        await log.attempt("dynamodb:DeleteItem", name, store.write(delete))
    return log.probes


async def probe_stream(clients: ClientFactory, stream: Stream) -> list[Probe]:
    """Try all that a client does with a stream, until a call fails that others need."""
    log, name = ProbeLog(), stream.name
    source = await log.attempt("kinesis", name, open_source(clients, stream))
    if source is None:
        return log.probes
    log.probes.clear()
    await log.attempt("kinesis:DescribeStreamSummary", name, source.describe())
    listing = await log.attempt("kinesis:ListShards", name, source.list_shards())
    open_shard = next((s.shard_id for s in listing or () if not s.closed), None)
    if open_shard is None:
        return log.probes
    iterator = await log.attempt(
        "kinesis:GetShardIterator", name, source.get_iterator(open_shard, Start.LATEST)
    )
    if iterator is not None:
        records = source.get_records(iterator, 1)
        await log.attempt("kinesis:GetRecords", name, records)
    return log.probes


def failed_probes(probes: Iterable[Probe]) -> Iterator[Finding]:
    """Yield denied actions, missing streams, and actions that couldn't be tried."""
    reported: set[str] = set()
    for probe in probes:
        if probe.error is None or str(probe.error) in reported:
            continue
        reported.add(str(probe.error))
        if isinstance(probe.error, AccessDeniedError):
            yield _denied(probe.error)
        elif isinstance(probe.error, StreamMissingError):
            yield Finding(
                "permissions",
                Severity.CRITICAL,
                probe.resource,
                str(probe.error),
                "correct its name, account or region, or --role; if it was deleted, "
                "remove it from consume()",
            )
        elif not isinstance(probe.error, TABLE_ERRORS):
            yield _untried(probe)


def _untried(probe: Probe) -> Finding:
    without = OPTIONAL.get(probe.action)
    return Finding(
        "permissions",
        Severity.WARNING if without is None else Severity.NOTE,
        f"{probe.action} on {probe.resource}",
        f"couldn't be tried: {probe.error}" + (f"; {without}" if without else ""),
        "run the doctor again; if it lasts, follow the error's text",
    )


def _denied(error: AccessDeniedError) -> Finding:
    optional = OPTIONAL.get(error.action)
    subject = f"{error.action} on {error.resource}"
    if optional is not None:
        return Finding(
            "permissions",
            Severity.NOTE,
            subject,
            f"not allowed: {optional}",
            "allow it to operators (schema/iam/operator.json)",
        )
    reason = f": {error.reason}" if error.reason else ""
    return Finding(
        "permissions",
        Severity.CRITICAL,
        subject,
        f"not allowed{reason}",
        error.advice
        or f"allow {error.action} on it for the credentials in use, or name the role "
        "that reads the stream with --role; schema/iam/ has the policies",
    )


def unusable_store(table: str, probes: Iterable[Probe]) -> Iterator[Finding]:
    """Yield missing credentials, and a table that can't be used, each once."""
    reported: set[str] = set()
    for probe in probes:
        error = probe.error
        if not isinstance(error, TABLE_ERRORS) or str(error) in reported:
            continue
        reported.add(str(error))
        if isinstance(error, CredentialsError):
            yield Finding(
                "credentials",
                Severity.CRITICAL,
                "AWS credentials",
                str(error),
                "give the process credentials, and run the doctor again",
            )
        else:
            yield Finding(
                "state store",
                Severity.CRITICAL,
                f"table {table}",
                str(error),
                "check --table and --region, or create the table as described",
            )
