"""Parse requests to AWS, and create the error of a denied request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

from kinesumer.testing.kinesis.errors import AwsError

if TYPE_CHECKING:
    from collections.abc import Mapping

_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/[^/,]*/([^/,]*)/")
_SERVICES = {"Kinesis_20131202": "kinesis", "DynamoDB_20120810": "dynamodb"}


class Request(NamedTuple):
    """An AWS request whose caller isn't identified yet."""

    service: str
    operation: str
    body: bytes
    form: Mapping[str, str]  # the fields of an STS request
    access_key: str
    region: str
    session_token: str | None
    user_agent: str
    content_type: str


def parse_request(headers: Mapping[str, str], body: bytes) -> Request:
    """Parse a request. A request without the target header is an STS request."""
    prefix, _, operation = headers.get("X-Amz-Target", "").partition(".")
    service = _SERVICES.get(prefix, "sts")
    form = dict(parse_qsl(body.decode())) if service == "sts" else {}
    key, region = "", ""
    if match := _CREDENTIAL.search(headers.get("Authorization", "")):
        key, region = match.groups()
    return Request(
        service,
        form.get("Action", "") if service == "sts" else operation,
        body,
        form,
        key,
        region,
        headers.get("X-Amz-Security-Token"),
        headers.get("User-Agent", ""),
        headers.get("Content-Type", ""),
    )


def access_denied(caller: str, action: str, resource: str, why: str = "") -> AwsError:
    """Return the error for a denied action, with the text that AWS uses."""
    reason = why or f"no identity-based policy allows the {action} action"
    return AwsError(
        "AccessDeniedException",
        f"User: {caller} is not authorized to perform: {action} "
        f"on resource: {resource} because {reason}",
    )
