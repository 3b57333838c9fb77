"""The one exception that stands for an error answer of AWS."""

from __future__ import annotations


class AwsError(Exception):
    """AWS refuses: an error code, a message and an HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status


def access_denied(caller: str, action: str, resource: str, why: str = "") -> AwsError:
    """Return the refusal of an action in AWS's own words."""
    reason = why or f"no identity-based policy allows the {action} action"
    return AwsError(
        "AccessDeniedException",
        f"User: {caller} is not authorized to perform: {action} "
        f"on resource: {resource} because {reason}",
    )
