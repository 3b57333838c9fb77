"""What calls to SQS and S3 fail with, as errors of this library."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kinesumer.aws.errors import (
    FOREIGN,
    Kind,
    describe,
    failure_of,
    fatal_error,
    translated_errors,
)
from kinesumer.errors import (
    DeadLettersUnavailableError,
    FatalError,
    KinesumerError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.aws.errors import AwsFailure
    from kinesumer.aws.session import OpenClient


class RefusedCallError(FatalError):
    """AWS refused a call for a reason of its own, which ``code`` names."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@contextmanager
def translated(opened: OpenClient, action: str, resource: str) -> Iterator[None]:
    """Translate errors: what passes becomes DeadLettersUnavailableError."""
    try:
        with translated_errors(action, DeadLettersUnavailableError):
            yield
    except FOREIGN as error:
        raise _error(failure_of(error), opened, action, resource) from error


def _error(
    fault: AwsFailure, opened: OpenClient, action: str, resource: str
) -> KinesumerError:
    message = f"{action} on {resource}: {describe(fault)}"
    if fault.kind in (Kind.THROTTLED, Kind.UNAVAILABLE):
        return DeadLettersUnavailableError(message)
    if fault.kind is Kind.TOKEN_EXPIRED and opened.expired():
        return DeadLettersUnavailableError(message)
    if fault.kind is Kind.OTHER and fault.code != "ParamValidationError":
        return RefusedCallError(fault.code, message)
    return fatal_error(fault, action, resource)
