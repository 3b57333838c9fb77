"""Requests of the services, and the errors of AWS."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from collections.abc import Mapping


_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/[^/,]*/([^/,]*)/")
_SERVICES = {"Kinesis_20131202": "kinesis", "DynamoDB_20120810": "dynamodb"}


class Request(NamedTuple):
    """An AWS request whose caller isn't identified yet."""

    service: str
    operation: str
    body: bytes
    access_key: str = ""
    region: str = ""
    session_token: str | None = None
    user_agent: str = ""

    @property
    def form(self) -> dict[str, str]:
        """The fields of an STS request."""
        return dict(parse_qsl(self.body.decode()))

    def require_signature(self) -> None:
        """Raise AwsError if the request isn't signed."""
        if not self.access_key:
            raise AwsError(
                "MissingAuthenticationTokenException", "Missing Authentication Token"
            )


def parse_request(headers: Mapping[str, str], body: bytes) -> Request:
    """Parse a request. The target header names the service; without it, it is STS."""
    prefix, _, operation = headers.get("X-Amz-Target", "").partition(".")
    service = _SERVICES.get(prefix, "sts")
    key, region = "", ""
    if found := _CREDENTIAL.search(headers.get("Authorization", "")):
        key, region = found.groups()
    inquiry = Request(
        service,
        operation,
        body,
        key,
        region,
        headers.get("X-Amz-Security-Token"),
        headers.get("User-Agent", ""),
    )
    if service == "sts":
        return inquiry._replace(operation=inquiry.form.get("Action", ""))
    return inquiry


class AwsError(Exception):
    """An error response of AWS: code, message and HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status


def access_denied(caller: str, action: str, resource: str, why: str = "") -> AwsError:
    """Return the error of a denied action, with AWS's text."""
    reason = why or f"no identity-based policy allows the {action} action"
    return AwsError(
        "AccessDeniedException",
        f"User: {caller} is not authorized to perform: {action} "
        f"on resource: {resource} because {reason}",
    )
