"""Every action that a client needs, tried so that nothing changes."""

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
    from collections.abc import Iterable, Iterator


if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kinesumer.aws.dynamodb import DynamoStateStore
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.streams import Stream

    T = TypeVar("T")


NOWHERE = Key("doctor", "doctor")
"""The key of a row that nobody writes: conditions on it never hold."""


NEVER = Compare("pk", "exists")


class ProbeLog:
    """What was tried so far, and what came of it."""

    def __init__(self) -> None:
        self.made: list[Probe] = []

    async def attempt(self, action: str, resource: str, call: Awaitable[T]) -> T | None:
        """Return what a call returns; None if it fails, which is noted."""
        try:
            result = await call
        except KinesumerError as error:
            self.made.append(Probe(action, resource, error))
            return None
        self.made.append(Probe(action, resource))
        return result

    @property
    def last_worked(self) -> bool:
        """Tell whether the last call succeeded."""
        return self.made[-1].error is None


async def probe_table(store: DynamoStateStore, table: str) -> list[Probe]:
    """Try all that a client does with the table; writes are refused by condition."""
    trials, name = ProbeLog(), f"table {table}"
    await trials.attempt("dynamodb:DescribeTable", name, store.verify())
    if isinstance(trials.made[-1].error, AccessDeniedError) or trials.last_worked:
        index = store.query_not_updated_since(NOWHERE.pk, "0")
        update = Write(NOWHERE, NEVER, {"seen": True})
        put = update._replace(replace=True)
        delete = Write(NOWHERE, NEVER, delete=True)
        await trials.attempt("dynamodb:GetItem", name, store.get(NOWHERE))
        await trials.attempt("dynamodb:Query", name, store.query(NOWHERE.pk))
        await trials.attempt("dynamodb:Query", f"{name}, its index", index)
        await trials.attempt("dynamodb:UpdateItem", name, store.write(update))
        await trials.attempt("dynamodb:PutItem", name, store.write(put))
        await trials.attempt("dynamodb:DeleteItem", name, store.write(delete))
    return trials.made


async def probe_stream(clients: ClientFactory, stream: Stream) -> list[Probe]:
    """Try all that a client does with a stream; a read needs what comes before it."""
    trials, name = ProbeLog(), stream.name
    source = await trials.attempt("kinesis", name, open_source(clients, stream))
    if source is None:
        return trials.made
    trials.made.clear()
    await trials.attempt("kinesis:DescribeStreamSummary", name, source.describe())
    listing = await trials.attempt("kinesis:ListShards", name, source.list_shards())
    open_shard = next((s.shard_id for s in listing or () if not s.closed), None)
    if open_shard is None:
        return trials.made
    iterator = await trials.attempt(
        "kinesis:GetShardIterator", name, source.get_iterator(open_shard, Start.LATEST)
    )
    if iterator is not None:
        records = source.get_records(iterator, 1)
        await trials.attempt("kinesis:GetRecords", name, records)
    return trials.made


OPTIONAL = {
    "kinesis:DescribeLimits": "without it, shard limits aren't checked",
    "sts:GetCallerIdentity": "without it, clocks aren't compared",
}
"""Actions that only the doctor asks for; many networks have no way to STS."""


class Probe(NamedTuple):
    """What came of trying an action."""

    action: str
    resource: str
    error: KinesumerError | None = None


def failed_probes(trials: Iterable[Probe]) -> Iterator[Finding]:
    """Tell which actions are missing, and which couldn't be tried, each once."""
    told: set[str] = set()
    for trial in trials:
        if trial.error is None or str(trial.error) in told:
            continue
        told.add(str(trial.error))
        if isinstance(trial.error, AccessDeniedError):
            yield _denied(trial.error)
        elif isinstance(trial.error, StreamMissingError):
            yield Finding(
                "permissions",
                Severity.CRITICAL,
                trial.resource,
                str(trial.error),
                "correct its name, account or region, or --role; if it was deleted, "
                "stop asking for it",
            )
        elif not isinstance(trial.error, ELSEWHERE):
            yield _untried(trial)


def _untried(trial: Probe) -> Finding:
    without = OPTIONAL.get(trial.action)
    return Finding(
        "permissions",
        Severity.WARNING if without is None else Severity.NOTE,
        f"{trial.action} on {trial.resource}",
        f"couldn't be tried: {trial.error}" + (f"; {without}" if without else ""),
        "run the doctor again; if it lasts, look at what is said",
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


ELSEWHERE = (CredentialsError, StateStoreMissingError, StateStoreSchemaError)
"""Findings of their own."""
