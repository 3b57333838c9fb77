"""STS: roles are assumed only by those they trust (moto's checks nothing)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from kinesumer.local.errors import AwsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.local.identity import Credentials, Identities

_NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"
_ERRORS = {
    "UnrecognizedClientException": ("InvalidClientTokenId", 403),
    "ExpiredTokenException": ("ExpiredToken", 403),
    "AccessDeniedException": ("AccessDenied", 403),
    "MissingAuthenticationTokenException": ("MissingAuthenticationToken", 403),
    "ThrottlingException": ("Throttling", 400),
    "ValidationException": ("ValidationError", 400),
    "UnknownOperationException": ("InvalidAction", 400),
}
"""What other services call by other names."""


def call(
    identities: Identities, caller: Credentials, form: Mapping[str, str], now: float
) -> bytes:
    """Carry out an STS request; raise AwsError if it is refused."""
    action = form.get("Action", "")
    if action == "GetCallerIdentity":
        return _caller_identity(caller)
    if action == "AssumeRole":
        return _assume_role(identities, caller, form, now)
    raise AwsError(
        "UnknownOperationException", f"The embedded STS has no action {action}."
    )


def _caller_identity(caller: Credentials) -> bytes:
    fields = {
        "Arn": caller.arn,
        "UserId": caller.access_key_id,
        "Account": caller.account,
    }
    return _response("GetCallerIdentity", _tags(fields))


def _assume_role(
    identities: Identities, caller: Credentials, form: Mapping[str, str], now: float
) -> bytes:
    name = form.get("RoleSessionName", "")
    duration = form.get("DurationSeconds", "3600")
    if not 2 <= len(name) <= 64:
        raise AwsError(
            "ValidationException", "RoleSessionName must have 2 to 64 letters"
        )
    if not duration.isdecimal() or not 900 <= int(duration) <= 43200:
        raise AwsError("ValidationException", "DurationSeconds must be 900 to 43200")
    role = identities.assume_role(
        caller,
        form.get("RoleArn", ""),
        session_name=name,
        external_id=form.get("ExternalId"),
        duration=int(duration),
        now=now,
    )
    credentials = {
        "AccessKeyId": role.access_key_id,
        "SecretAccessKey": role.secret_access_key,
        "SessionToken": role.session_token or "",
        "Expiration": _iso(role.expires_at or now),
    }
    user = {"Arn": role.arn, "AssumedRoleId": f"AROALOCAL:{name}"}
    return _response(
        "AssumeRole",
        f"<Credentials>{_tags(credentials)}</Credentials>"
        f"<AssumedRoleUser>{_tags(user)}</AssumedRoleUser>",
    )


def refusal(error: AwsError) -> tuple[int, bytes]:
    """Return an error's status and body as STS writes it."""
    code, status = _ERRORS.get(error.code, (error.code, error.status))
    kind = "Receiver" if status >= 500 else "Sender"
    fields = _tags({"Type": kind, "Code": code, "Message": error.message})
    return status, (
        f'<ErrorResponse xmlns="{_NAMESPACE}"><Error>{fields}</Error>'
        f"<RequestId>local</RequestId></ErrorResponse>"
    ).encode()


def _response(action: str, result: str) -> bytes:
    return (
        f'<{action}Response xmlns="{_NAMESPACE}"><{action}Result>{result}'
        f"</{action}Result><ResponseMetadata><RequestId>local</RequestId>"
        f"</ResponseMetadata></{action}Response>"
    ).encode()


def _tags(fields: Mapping[str, str]) -> str:
    return "".join(f"<{name}>{escape(text)}</{name}>" for name, text in fields.items())


def _iso(moment: float) -> str:
    text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
