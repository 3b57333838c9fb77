"""What calls to SQS and S3 fail with, as errors of this library."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kinesumer.aws.errors import FOREIGN, Kind, fatal, fault_of, said, understood
from kinesumer.errors import (
    DeadLettersUnavailableError,
    FatalError,
    KinesumerError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.aws.errors import Fault
    from kinesumer.aws.session import Opened


class RefusedCallError(FatalError):
    """AWS refused a call for a reason of its own, which ``code`` names."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@contextmanager
def translated(opened: Opened, action: str, resource: str) -> Iterator[None]:
    """Translate errors: what passes becomes DeadLettersUnavailableError."""
    try:
        with understood(action, DeadLettersUnavailableError):
            yield
    except FOREIGN as error:
        raise _error(fault_of(error), opened, action, resource) from error


def _error(fault: Fault, opened: Opened, action: str, resource: str) -> KinesumerError:
    message = f"{action} on {resource}: {said(fault)}"
    if fault.kind in (Kind.THROTTLED, Kind.UNAVAILABLE):
        return DeadLettersUnavailableError(message)
    if fault.kind is Kind.TOKEN_EXPIRED and opened.expired():
        return DeadLettersUnavailableError(message)
    if fault.kind is Kind.OTHER and fault.code != "ParamValidationError":
        return RefusedCallError(fault.code, message)
    return fatal(fault, action, resource)
