"""Classify errors of AWS and its clients, and convert them to the library's errors."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

import msgspec
from botocore import exceptions as sdk

from kinesumer.aws.endpoints import masked
from kinesumer.errors import (
    AccessDeniedError,
    ConfigurationError,
    CredentialsError,
    FatalError,
    KinesumerError,
    TransientError,
)
from kinesumer.runtime.text import SECRETS
from kinesumer.runtime.threads import refusal_errors
from kinesumer.wire.cbor import compiled, is_map

# Errors of modules that take 0.2 s of CPU time to import. Many of Spark's processes
# don't need these modules, and an error of a module that isn't loaded can't occur.
_PARSER, _AIOHTTP = (
    ("botocore.parsers", "ResponseParserError"),
    ("aiohttp", "ClientError"),
)
_OF_CONNECTIONS = (OSError, sdk.HTTPClientError, sdk.ConnectionError)
_WITHOUT_CREDENTIALS = (
    sdk.NoCredentialsError,
    sdk.NoRegionError,
    sdk.PartialCredentialsError,
    sdk.ProfileNotFound,
)
# Errors that occur while a response is read, if it is truncated or from a proxy.
MALFORMED = (
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
)


def foreign() -> tuple[type[Exception], ...]:
    """Return all errors that a call through aiobotocore may raise."""
    # TimeoutError is an OSError.
    always = (sdk.BotoCoreError, sdk.ClientError, MemoryError, OSError)
    return (*always, *_loaded(_PARSER), *_loaded(_AIOHTTP))


def _loaded(name: tuple[str, str]) -> list[type[Exception]]:
    """Return the error of a module if the module is loaded."""
    module, error = name
    # While another thread imports the module, it may lack the error.
    found = getattr(sys.modules.get(module), error, None)
    return [] if found is None else [found]


class KeysMissingError(sdk.BotoCoreError):  # type: ignore[misc]
    """The source of the keys has not given any yet."""

    fmt = "no AWS credentials yet: {cause}"


@contextmanager
def translated_errors(
    operation: str, unavailable: type[TransientError]
) -> Iterator[None]:
    """Raise ``unavailable`` if the block fails to read a response.

    Such a response isn't from AWS, or it is truncated. Do the same if the system
    refuses a thread or memory.
    """
    try:
        with refusal_errors(operation, unavailable):
            yield
    except MALFORMED as error:
        if isinstance(error, KinesumerError):
            raise
        SECRETS.clean(error)
        text = " ".join(str(error).split())[:200]
        raise unavailable(
            f"a response to {operation} isn't from AWS ({type(error).__name__}: "
            f"{text}); check which service responds at the endpoint"
        ) from error


@contextmanager
def call_errors(
    action: str,
    resource: str,
    unavailable: type[TransientError],
    keys: CallKeys,
    denial_advice: str = "",
) -> Iterator[None]:
    """Convert errors of the AWS call in the block to the library's errors.

    ``keys`` are those of the call. ``denial_advice`` says what to do if AWS denies the
    action.
    """
    try:
        with translated_errors(action.partition(":")[2], unavailable):
            yield
    except foreign() as error:
        fault, call = failure_of(error), f"{action} on {resource}"
        if fault.kind is Kind.THROTTLED:
            raise unavailable(f"{call}: {describe(fault)}") from error
        if (passing := transient_error(fault, unavailable, call, keys)) is not None:
            raise passing from error
        raise fatal_error(fault, action, resource, denial_advice) from error


class Kind(Enum):
    """Kinds of failures, each with a remedy of its own."""

    THROTTLED = auto()
    UNAVAILABLE = auto()
    DENIED = auto()
    TOKEN_EXPIRED = auto()
    KEYS_REFUSED = auto()
    KEYS_MISSING = auto()
    NO_CREDENTIALS = auto()
    OTHER = auto()


# AWS refuses the keys of a call. Their source may have others.
KEY_KINDS = (Kind.TOKEN_EXPIRED, Kind.KEYS_REFUSED)


class AwsFailure(NamedTuple):
    """The kind of an error, AWS's code (or the error's class), and the text."""

    kind: Kind
    code: str
    text: str
    is_unanswered: bool = False  # the service was not reached, or did not answer


class CallKeys(Protocol):
    """The keys of a call. See ``credentials.KeyUse``."""

    def may_recover(self, fault: AwsFailure) -> bool:
        """Return whether a call that failed because of its keys may succeed later."""
        ...

    def state(self) -> str:
        """Return what is wrong with the keys, in one line."""
        ...


# AWS's error codes, here and in ``_KINDS``. The suffix "Exception" is omitted, since
# only some services append it.
_UNKNOWN_KEYS = (
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignature",
    "MissingAuthenticationToken",
    "SignatureDoesNotMatch",
    "UnrecognizedClient",
)
_KINDS = {
    Kind.THROTTLED: (
        "KMSThrottling",
        "LimitExceeded",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "RequestThrottled",
        "SlowDown",
        "Throttled",
        "Throttling",
        "TooManyRequests",
        "TransactionConflict",  # the item is in a transaction: nothing was written
    ),
    Kind.UNAVAILABLE: (
        "ContinuousBackupsUnavailable",  # of a table that was just created
        "InternalError",
        "InternalFailure",
        "InternalServer",
        "InternalServerError",
        "ReplicatedWriteConflict",
        "RequestExpired",
        "RequestTimeout",
        "RequestTimeTooSkewed",
        "ResourceInUse",  # the resource is being created, changed or deleted
        "ServiceUnavailable",
    ),
    Kind.DENIED: (
        "AccessDenied",
        "AuthFailure",
        "KMSAccessDenied",
        "NotAuthorized",
        "OptInRequired",
        "UnauthorizedOperation",
    ),
    Kind.KEYS_REFUSED: _UNKNOWN_KEYS,
    Kind.TOKEN_EXPIRED: ("ExpiredToken",),
}
_KIND_BY_CODE = {code: kind for kind, codes in _KINDS.items() for code in codes}
UNKNOWN = (
    "AWS doesn't accept the credentials in use: correct them (AWS_PROFILE, or "
    "AWS_ACCESS_KEY_ID with its secret and token), or the region and endpoint"
)
EXPIRED = "renew them, or use a profile or role that renews them automatically"

# AWS's text for a signature that is too old or too new, because the process was
# suspended or a clock is wrong.
_LATE = re.compile(r"signature (expired|not yet current)", re.IGNORECASE)


def failure_of(error: Exception) -> AwsFailure:
    """Classify an error that aiobotocore raised."""
    SECRETS.clean(error)
    if isinstance(error, sdk.ClientError):
        return _answered(error)
    code, text = type(error).__name__, masked(" ".join(str(error).split()))
    if isinstance(error, KeysMissingError):
        return AwsFailure(Kind.KEYS_MISSING, code, text)
    if isinstance(error, _WITHOUT_CREDENTIALS):
        return AwsFailure(Kind.NO_CREDENTIALS, code, text)
    if isinstance(error, sdk.ParamValidationError):
        return AwsFailure(Kind.OTHER, code, text)
    if not isinstance(error, (*_OF_CONNECTIONS, *_loaded(_AIOHTTP))):
        return AwsFailure(Kind.UNAVAILABLE, code, text)
    if isinstance(error, TimeoutError):  # its text says it all
        code, text = "", text or "no answer in time"
    for endpoint in getattr(error, "__notes__", ())[:1]:
        text += f" (endpoint {endpoint})"
    return AwsFailure(Kind.UNAVAILABLE, code, text, is_unanswered=True)


def _answered(error: sdk.ClientError) -> AwsFailure:
    answer = error.response
    code = str(answer.get("Error", {}).get("Code", ""))
    text = _without_request(error)
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    kind = _KIND_BY_CODE.get(code.removesuffix("Exception"))
    if kind is Kind.KEYS_REFUSED and _LATE.search(text):
        kind = Kind.UNAVAILABLE
    if kind is None and status == 429:
        kind = Kind.THROTTLED
    if kind is None and status >= 500:
        kind = Kind.UNAVAILABLE
    return AwsFailure(kind or Kind.OTHER, code, text)


def transient_error(
    fault: AwsFailure, unavailable: type[TransientError], call: str, keys: CallKeys
) -> TransientError | None:
    """Return the error for a call that may succeed later, or None for other failures.

    Callers check for throttling themselves. ``call`` names the call, and ``keys`` are
    those of the call.
    """
    message = f"{call}: {describe(fault)}"
    if fault.is_unanswered:
        message += "; check the endpoint, the region and the network"
    if fault.kind is Kind.UNAVAILABLE:
        return unavailable(message)
    if fault.kind not in (*KEY_KINDS, Kind.KEYS_MISSING):
        return None
    if not keys.may_recover(fault):
        return None
    state = keys.state()
    error = unavailable(
        f"{call} needs other credentials: {state}" if state else message
    )
    error.lacks_credentials = True
    return error


def cause_of(error: Exception) -> str:
    """Return in one line why a source of keys gave none."""
    if isinstance(error, KinesumerError):
        return str(error)
    return describe(failure_of(error))


def _without_request(error: sdk.ClientError) -> str:
    """Return AWS's text, and remove the quoted request from the error.

    If AWS rejects a signature, the text of the error quotes the request, including the
    session token.
    """
    answer: dict[str, Any] = error.response.get("Error", {})
    SECRETS.clean_values(answer)
    SECRETS.clean_values(
        error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    )
    text = str(answer.get("Message", ""))
    plain, quote, _ = text.partition("The Canonical String for this request")
    if quote:
        error.args = tuple(str(arg).replace(text, plain) for arg in error.args)
        answer["Message"] = plain
    return plain


class _Refusal(msgspec.Struct):
    code: str | None = msgspec.field(default=None, name="__type")
    message: str | None = None
    capital: str | None = msgspec.field(default=None, name="Message")
    # The row with which a write to DynamoDB conflicts.
    item: dict[str, Any] | None = msgspec.field(default=None, name="Item")


def refusal(operation: str, status: int, body: bytes | bytearray) -> sdk.ClientError:
    """Return botocore's error for an unsuccessful response."""
    try:
        if compiled is not None and is_map(body):
            refused = msgspec.convert(compiled.decode(body), _Refusal)
        else:
            refused = msgspec.json.decode(body, type=_Refusal)
    except (msgspec.DecodeError, ValueError, RecursionError):
        # The response comes from a proxy, not from AWS.
        refused = _Refusal(message=SECRETS.quote(body.decode(errors="replace")))
    # AWS may send the code as "namespace#Code:link".
    code = (refused.code or str(status)).partition(":")[0].rpartition("#")[2]
    error = {"Code": code, "Message": refused.message or refused.capital or ""}
    response: Any = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}
    if refused.item is not None:
        response["Item"] = refused.item
    return sdk.ClientError(response, operation)


def fatal_error(
    fault: AwsFailure, action: str, resource: str, denial_advice: str = ""
) -> FatalError | ConfigurationError:
    """Return the error for a failure that a retry can't solve."""
    if fault.code == "ParamValidationError":
        return ConfigurationError(
            f"{action} on {resource}: correct what AWS's client names: {fault.text}"
        )
    if fault.kind is Kind.NO_CREDENTIALS:
        return no_credentials(fault)
    if fault.kind is Kind.TOKEN_EXPIRED:
        reason = "the credentials have expired"
        return AccessDeniedError(action, resource, reason, EXPIRED)
    if fault.kind is Kind.KEYS_REFUSED:
        return AccessDeniedError(action, resource, describe(fault), UNKNOWN)
    if fault.kind is Kind.DENIED:
        return AccessDeniedError(*denial(fault, action, resource), denial_advice)
    return FatalError(
        f"{action} on {resource} failed; correct what AWS names: {describe(fault)}"
    )


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
    return ": ".join(part for part in (fault.code, text) if part)


def denial(fault: AwsFailure, action: str, resource: str) -> tuple[str, str, str]:
    """Return what AWS denies: an action, its resource, and the reason.

    AWS may check another action within a call, such as one on a KMS key.
    """
    denied = _DENIED.search(fault.text)
    if denied is not None and denied[1] != action:
        action, resource = denied[1], denied[2]
    return action, resource, _denial(fault)


_DENIED = re.compile(r"not authorized to perform: ([\w-]+:\w+) on resource: (\S+)")
_DENIAL = re.compile(r"User: (\S+ is not authorized).*?(because .+)?$", re.DOTALL)


def _denial(fault: AwsFailure) -> str:
    """Return AWS's text without the action and resource, which our error names."""
    match = _DENIAL.match(fault.text)
    if match is None:
        return describe(fault)
    return " ".join(part for part in match.groups() if part)
