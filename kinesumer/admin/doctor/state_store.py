"""Whether there are credentials, and a table that can be a state store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.admin.doctor.finding import Finding, Severity
from kinesumer.admin.doctor.permission_probe import ELSEWHERE
from kinesumer.errors import CredentialsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesumer.admin.doctor.permission_probe import Probe


def unusable_store(table: str, trials: Iterable[Probe]) -> Iterator[Finding]:
    """Tell of missing credentials once, and of a table that can't be used."""
    told: set[str] = set()
    for trial in trials:
        error = trial.error
        if not isinstance(error, ELSEWHERE) or str(error) in told:
            continue
        told.add(str(error))
        if isinstance(error, CredentialsError):
            yield Finding(
                "credentials",
                Severity.CRITICAL,
                "AWS credentials",
                str(error),
                "give the process credentials, and look again",
            )
        else:
            yield Finding(
                "state store",
                Severity.CRITICAL,
                f"table {table}",
                str(error),
                "check --table and --region, or make the table as it says",
            )
