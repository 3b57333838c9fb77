"""Actions that the credentials in use may not do, found by doing them harmlessly."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesumer.errors import (
    AccessDeniedError,
    CredentialsError,
    StateStoreMissingError,
    StateStoreSchemaError,
    StreamMissingError,
)
from kinesumer.operations.doctor.finding import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesumer.errors import KinesumerError

OPTIONAL = {
    "kinesis:DescribeLimits": "without it, shard limits aren't checked",
    "sts:GetCallerIdentity": "without it, clocks aren't compared",
}
"""Actions that only the doctor asks for; many networks have no way to STS."""


class Trial(NamedTuple):
    """What came of trying an action."""

    action: str
    resource: str
    error: KinesumerError | None = None


def denied(trials: Iterable[Trial]) -> Iterator[Finding]:
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


def _untried(trial: Trial) -> Finding:
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
