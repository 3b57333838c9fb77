"""What AWS's many errors mean, said once: one table from foreign errors to kinds."""

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
"""All that a call through aiobotocore can fail with (a timeout is an OSError)."""


MALFORMED = (
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
)
"""What reading an answer fails with that isn't one of AWS (a proxy's, a cut one)."""


@contextmanager
def translated_errors(
    operation: str, unavailable: type[TransientError]
) -> Iterator[None]:
    """Make a fault that passes of an answer that can't be one of AWS."""
    try:
        yield
    except MALFORMED as error:
        if isinstance(error, KinesumerError):
            raise
        describe = " ".join(str(error).split())[:200]
        raise unavailable(
            f"an answer to {operation} isn't one of AWS ({type(error).__name__}: "
            f"{describe}); check what answers at the endpoint"
        ) from error


class Kind(Enum):
    """What can be done about a fault."""

    THROTTLED = auto()
    UNAVAILABLE = auto()
    DENIED = auto()
    TOKEN_EXPIRED = auto()
    NO_CREDENTIALS = auto()
    OTHER = auto()


class AwsFailure(NamedTuple):
    """A foreign error: its kind, AWS's code (or the error's class) and its text."""

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
    "AWS doesn't accept the credentials in use: correct them (AWS_PROFILE, "
    "AWS_ACCESS_KEY_ID and what goes with it), or what they are for (region, endpoint)"
)
EXPIRED = "renew them, or use a profile or role that does so by itself"

_LATE = re.compile(r"signature (expired|not yet current)", re.IGNORECASE)
"""A request that was sent long after its signing (a stopped process, a wrong clock)."""


def failure_of(error: Exception) -> AwsFailure:
    """Say what an error from aiobotocore means."""
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
    """Return what AWS says, and let nobody else find more in the error.

    Of a signature that it refuses, AWS says over which request it should have been
    made: with all its headers, the session token among them.
    """
    answer = error.response.get("Error", {})
    text = str(answer.get("Message", ""))
    kept, repeats, _ = text.partition("The Canonical String for this request")
    if repeats:
        error.args = tuple(str(describe).replace(text, kept) for describe in error.args)
        answer["Message"] = kept
    return kept


class _Refusal(msgspec.Struct):
    code: str | None = msgspec.field(default=None, name="__type")
    message: str | None = None
    capital: str | None = msgspec.field(default=None, name="Message")


def refusal(operation: str, status: int, body: bytes | bytearray) -> ClientError:
    """Return an answer that isn't a success as the error that botocore makes of it."""
    try:
        describe = msgspec.json.decode(body, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Not from Kinesis, but from something on the way there.
        describe = _Refusal(message=body.decode(errors="replace"))
    # "namespace#Code:link", of which only the code says anything.
    code = (describe.code or str(status)).partition(":")[0].rpartition("#")[2]
    error = {"Code": code, "Message": describe.message or describe.capital or ""}
    return ClientError(
        {"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}, operation
    )


def fatal_error(
    fault: AwsFailure, action: str, resource: str
) -> FatalError | ConfigurationError:
    """Return the error for a fault that trying again can't help."""
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
    """Return the error for credentials or a region that can't be found."""
    if fault.code == "NoRegionError":
        return CredentialsError(
            "no AWS region: pass region=…, set AWS_REGION, or set one in the profile"
        )
    hint = (
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run "
        "where an instance or task role gives them"
    )
    if fault.code == "NoCredentialsError":
        return CredentialsError(f"no AWS credentials: {hint}")
    return CredentialsError(f"no usable AWS credentials: {fault.text}; {hint}")


def describe(fault: AwsFailure) -> str:
    """Return AWS's code and text in one line of bearable length."""
    text = " ".join(fault.text.split())
    if len(text) > 300:
        text = text[:297] + "..."
    return f"{fault.code}: {text}" if text else fault.code


_DENIAL = re.compile(r"User: (\S+) is not authorized.*?(because .+)?$", re.DOTALL)


def _denial(fault: AwsFailure) -> str:
    """Shorten AWS's sentence, which repeats the action and the resource."""
    match = _DENIAL.match(fault.text)
    if match is None:
        return describe(fault)
    return " ".join(part for part in match.groups() if part)


NOT_OBTAINED = (CredentialRetrievalError, MetadataRetrievalError)
"""Credentials that exist but couldn't be fetched just now."""


def missing_table(table: str) -> StateStoreMissingError:
    """Return the error for a table that doesn't exist."""
    return StateStoreMissingError(
        f"table {table} doesn't exist in this account and region; check them, or "
        f"create it with: kinesumer init --table {table}"
    )
