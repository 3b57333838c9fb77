"""Maps errors of AWS and its clients to kinds, and to the library's errors."""

from __future__ import annotations

import re
from contextlib import contextmanager
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
import msgspec
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    MetadataRetrievalError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
)
from botocore.parsers import ResponseParserError

from kinesumer.aws.endpoints import masked
from kinesumer.errors import (
    AccessDeniedError,
    ConfigurationError,
    CredentialsError,
    FatalError,
    KinesumerError,
    StateStoreMissingError,
    TransientError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FOREIGN = (
    BotoCoreError,
    ClientError,
    ResponseParserError,
    aiohttp.ClientError,
    OSError,
)
"""Every error of a call through aiobotocore. A time-out is an OSError."""


MALFORMED = (
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
)
"""Errors of reading a response that isn't from AWS (a proxy's, or a truncated one)."""


@contextmanager
def translated_errors(
    operation: str, unavailable: type[TransientError]
) -> Iterator[None]:
    """Raise a transient error if a response can't be from AWS."""
    try:
        yield
    except MALFORMED as error:
        if isinstance(error, KinesumerError):
            raise
        text = " ".join(str(error).split())[:200]
        raise unavailable(
            f"a response to {operation} isn't from AWS ({type(error).__name__}: "
            f"{text}); check which service responds at the endpoint"
        ) from error


class Kind(Enum):
    """Kinds of failures, by what can be done about them."""

    THROTTLED = auto()
    UNAVAILABLE = auto()
    DENIED = auto()
    TOKEN_EXPIRED = auto()
    NO_CREDENTIALS = auto()
    OTHER = auto()


class AwsFailure(NamedTuple):
    """The kind of an error, AWS's code (or the error's class), and the text."""

    kind: Kind
    code: str
    text: str


_KINDS = {
    Kind.THROTTLED: (
        "KMSThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "TransactionConflictException",
    ),
    Kind.UNAVAILABLE: (
        "InternalError",
        "InternalFailure",
        "InternalFailureException",
        "InternalServerError",
        "InternalServerException",
        "ReplicatedWriteConflictException",
        "RequestExpired",
        "RequestTimeout",
        "RequestTimeoutException",
        "RequestTimeTooSkewed",
        "ResourceInUseException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
    ),
    Kind.DENIED: (
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "KMSAccessDeniedException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "NotAuthorizedException",
        "OptInRequired",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    ),
    Kind.TOKEN_EXPIRED: (
        "ExpiredToken",
        "ExpiredTokenException",
    ),
}
_KIND_BY_CODE = {code: kind for kind, codes in _KINDS.items() for code in codes}

UNKNOWN_KEYS = (
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
)
UNKNOWN = (
    "AWS doesn't accept the credentials in use: correct them (AWS_PROFILE, or "
    "AWS_ACCESS_KEY_ID with its secret and token), or the region and endpoint"
)
EXPIRED = "renew them, or use a profile or role that renews them automatically"

_LATE = re.compile(r"signature (expired|not yet current)", re.IGNORECASE)
"""Matches the error of a request that was sent long after it was signed, because of a
stopped process or a wrong clock."""


def failure_of(error: Exception) -> AwsFailure:
    """Return the failure that an error from aiobotocore means."""
    if isinstance(error, ClientError):
        return _answered(error)
    code, text = type(error).__name__, masked(" ".join(str(error).split()))
    if isinstance(
        error,
        NoCredentialsError | NoRegionError | PartialCredentialsError | ProfileNotFound,
    ):
        return AwsFailure(Kind.NO_CREDENTIALS, code, text)
    if isinstance(error, ParamValidationError):
        return AwsFailure(Kind.OTHER, code, text)
    return AwsFailure(Kind.UNAVAILABLE, code, text)


def _answered(error: ClientError) -> AwsFailure:
    answer = error.response
    code = str(answer.get("Error", {}).get("Code", ""))
    text = _without_request(error)
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    kind = _KIND_BY_CODE.get(code)
    if kind is Kind.DENIED and _LATE.search(text):
        kind = Kind.UNAVAILABLE
    if kind is None and status == 429:
        kind = Kind.THROTTLED
    if kind is None and status >= 500:
        kind = Kind.UNAVAILABLE
    return AwsFailure(kind or Kind.OTHER, code, text)


def _without_request(error: ClientError) -> str:
    """Return AWS's text, and remove the quoted request from the error.

    If AWS rejects a signature, its text quotes the request, including the session
    token.
    """
    answer = error.response.get("Error", {})
    text = str(answer.get("Message", ""))
    kept, repeats, _ = text.partition("The Canonical String for this request")
    if repeats:
        error.args = tuple(str(arg).replace(text, kept) for arg in error.args)
        answer["Message"] = kept
    return kept


class _Refusal(msgspec.Struct):
    code: str | None = msgspec.field(default=None, name="__type")
    message: str | None = None
    capital: str | None = msgspec.field(default=None, name="Message")


def refusal(operation: str, status: int, body: bytes | bytearray) -> ClientError:
    """Return botocore's error for an unsuccessful response."""
    try:
        refused = msgspec.json.decode(body, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # The response comes from a proxy, not from Kinesis.
        refused = _Refusal(message=body.decode(errors="replace"))
    # The text is "namespace#Code:link". Only the code is needed.
    code = (refused.code or str(status)).partition(":")[0].rpartition("#")[2]
    error = {"Code": code, "Message": refused.message or refused.capital or ""}
    return ClientError(
        {"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}, operation
    )


def fatal_error(
    fault: AwsFailure, action: str, resource: str
) -> FatalError | ConfigurationError:
    """Return the error for a failure that a retry doesn't solve."""
    if fault.code == "ParamValidationError":
        return ConfigurationError(f"{action} on {resource}: {fault.text}")
    if fault.kind is Kind.NO_CREDENTIALS:
        return no_credentials(fault)
    if fault.kind is Kind.TOKEN_EXPIRED:
        reason = "the credentials have expired"
        return AccessDeniedError(action, resource, reason, EXPIRED)
    if fault.kind is Kind.DENIED:
        if fault.code == "KMSAccessDeniedException":
            action, resource = "kms:Decrypt", f"the key of {resource}"
        advice = UNKNOWN if fault.code in UNKNOWN_KEYS else ""
        return AccessDeniedError(action, resource, _denial(fault), advice)
    return FatalError(f"{action} on {resource} failed: {describe(fault)}")


def no_credentials(fault: AwsFailure) -> CredentialsError:
    """Return the error for missing credentials or a missing region."""
    if fault.code == "NoRegionError":
        return CredentialsError(
            "no AWS region: pass region=…, set AWS_REGION, or set one in the profile"
        )
    hint = (
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run "
        "where an instance or task role provides them"
    )
    if fault.code == "NoCredentialsError":
        return CredentialsError(f"no AWS credentials: {hint}")
    return CredentialsError(f"no usable AWS credentials: {fault.text}; {hint}")


def describe(fault: AwsFailure) -> str:
    """Return AWS's code and text in one line of at most about 300 characters."""
    text = " ".join(fault.text.split())
    if len(text) > 300:
        text = text[:297] + "..."
    return f"{fault.code}: {text}" if text else fault.code


_DENIAL = re.compile(r"User: (\S+) is not authorized.*?(because .+)?$", re.DOTALL)


def _denial(fault: AwsFailure) -> str:
    """Return AWS's text without the action and resource, which the error names."""
    match = _DENIAL.match(fault.text)
    if match is None:
        return describe(fault)
    return " ".join(part for part in match.groups() if part)


NOT_OBTAINED = (CredentialRetrievalError, MetadataRetrievalError)
"""Errors of credentials that exist but couldn't be fetched now."""


def missing_table(table: str) -> StateStoreMissingError:
    """Return the error for a table that doesn't exist."""
    return StateStoreMissingError(
        f"table {table} doesn't exist in this account and region; check them, or "
        f"create it with: kinesumer init --table {table}"
    )
