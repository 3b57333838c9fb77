"""Convert the errors of Kinesis's operations to the library's errors."""

from __future__ import annotations

from kinesumer.aws.errors import (
    AwsFailure,
    CallKeys,
    Kind,
    denial,
    describe,
    fatal_error,
    transient_error,
)
from kinesumer.errors import (
    ExpiredIteratorError,
    InvalidPositionError,
    KeyDeniedError,
    KeyThrottledError,
    KeyUnavailableError,
    KinesumerError,
    RecordRefusedError,
    ShardMissingError,
    ShardThrottledError,
    SourceThrottledError,
    SourceUnavailableError,
    TrimmedPositionError,
)

READS = ("GetRecords", "GetShardIterator")
SUBSCRIBE = "SubscribeToShard"
PUT = "PutRecords"
# Operations for which "not found" concerns the stream consumer, not the stream.
OF_CONSUMER = ("DescribeStreamConsumer", "DeregisterStreamConsumer")
_PLACING = ("GetShardIterator", SUBSCRIBE)  # operations that take a position

NOT_FOUND = "ResourceNotFoundException"
IN_USE = "ResourceInUseException"
_SHARD_THROTTLED = "ProvisionedThroughputExceededException"
_REFUSALS = ("InvalidArgumentException", "ValidationException")
# Codes by which Kinesis, the AWS client, or a proxy with a limit (status 413) refuses a
# request because of one of its records.
_REFUSALS_OF_RECORDS = (*_REFUSALS, "ParamValidationError", "413")
# If an InvalidArgumentException has one of these texts, the sequence number was never
# the number of a record of this shard. The last text is that of a closed shard's ending
# number. With any other text, the record at the position has expired.
_FOREIGN_NUMBER = (
    "did not come from",
    "encodes",
    "not a valid",
    "malformed",
    "reached max possible value",
)


class SubscriptionInUseError(SourceThrottledError):
    """Another subscription of the shard began less than five seconds ago."""


class ConsumerStateError(KinesumerError):
    """A stream consumer does not exist, or already exists."""


class ExpiredTokenError(KinesumerError):
    """The token of a listing expired before its next page was read."""


_ERRORS: dict[str, type[KinesumerError]] = {
    "ExpiredIteratorException": ExpiredIteratorError,
    "ExpiredNextTokenException": ExpiredTokenError,
}
# For other operations, a resource in use is one that is being created or changed.
_ERRORS_OF_USE: dict[str, type[KinesumerError]] = {
    SUBSCRIBE: SubscriptionInUseError,
    "RegisterStreamConsumer": ConsumerStateError,
}


# What to do if KMS refuses the use of a stream's key, by the error's code.
_KEY_DENIED, _KEY_THROTTLED = "KMSAccessDeniedException", "KMSThrottlingException"
_KEY_REMEDIES = {
    _KEY_DENIED: "allow the credentials in use to use the stream's key (kms:Decrypt to "
    "read, kms:GenerateDataKey to put), in their policy or in the key's",
    "KMSDisabledException": "enable the stream's key",
    "KMSInvalidStateException": "cancel the deletion of the stream's key, or import "
    "its material",
    "KMSNotFoundException": "choose another key for the stream; without the old key, "
    "its older records can't be read any more",
    "KMSOptInRequired": "activate KMS for the account in use",
    _KEY_THROTTLED: "raise the account's quota of KMS requests",
}


def _key_error(
    fault: AwsFailure, action: str, stream: str, message: str
) -> KinesumerError:
    remedy = _KEY_REMEDIES[fault.code]
    if fault.code == _KEY_DENIED:
        return KeyDeniedError(*denial(fault, action, stream), remedy)
    is_throttled = fault.code == _KEY_THROTTLED
    kind = KeyThrottledError if is_throttled else KeyUnavailableError
    return kind(f"{message}; {remedy}")


def kinesis_error(
    fault: AwsFailure,
    operation: str,
    stream: str,
    shard_id: str,
    keys: CallKeys,
) -> KinesumerError:
    """Return the library's error for a failed operation on a stream or shard.

    ``keys`` are those of the call.
    """
    action = f"kinesis:{operation}"
    resource = f"{stream}, {shard_id}" if shard_id else stream
    call = f"{action} on {resource}"
    message = f"{call}: {describe(fault)}"
    if fault.code in _KEY_REMEDIES:
        return _key_error(fault, action, stream, message)
    if fault.kind is Kind.THROTTLED:
        if operation in READS and fault.code == _SHARD_THROTTLED:
            return ShardThrottledError(message)
        return SourceThrottledError(message)
    if fault.code == IN_USE and operation in _ERRORS_OF_USE:
        return _ERRORS_OF_USE[operation](message)
    passing = transient_error(fault, SourceUnavailableError, call, keys)
    if passing is not None:
        return passing
    if fault.code in _ERRORS:
        return _ERRORS[fault.code](message)
    if fault.code == NOT_FOUND:
        if operation in OF_CONSUMER:
            return ConsumerStateError(message)
        return ShardMissingError(message)
    if operation in _PLACING and fault.code in _REFUSALS:
        is_trimmed = fault.code == _REFUSALS[0] and not any(
            phrase in fault.text for phrase in _FOREIGN_NUMBER
        )
        return (TrimmedPositionError if is_trimmed else InvalidPositionError)(message)
    if operation == PUT and fault.code in _REFUSALS_OF_RECORDS:
        return RecordRefusedError(message)
    return fatal_error(fault, action, stream)
