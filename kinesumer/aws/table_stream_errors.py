"""Convert the errors of DynamoDB Streams to the library's errors."""

from __future__ import annotations

from kinesumer.aws.errors import (
    AwsFailure,
    CallKeys,
    Kind,
    describe,
    fatal_error,
    transient_error,
)
from kinesumer.aws.table_polling import NoTimestampsError
from kinesumer.errors import (
    ExpiredIteratorError,
    InvalidPositionError,
    KinesumerError,
    ShardMissingError,
    ShardThrottledError,
    SourceThrottledError,
    SourceUnavailableError,
    StartInFutureError,
    TrimmedPositionError,
)

DESCRIBE, READ, PLACE = "DescribeStream", "GetRecords", "GetShardIterator"
NOT_FOUND = "ResourceNotFoundException"
_INVALID = ("ValidationException", "ParamValidationError")
_ERRORS: dict[str, type[KinesumerError]] = {
    "ExpiredIteratorException": ExpiredIteratorError,
    "TrimmedDataAccessException": TrimmedPositionError,
    NOT_FOUND: ShardMissingError,
}
# The names of the argument that older servers refuse if it is AT_TIMESTAMP.
_TYPE_ARGUMENT = ("sharditeratortype", "enum value set", "at_timestamp")


def table_stream_error(
    fault: AwsFailure,
    operation: str,
    resource: str,
    keys: CallKeys,
    *,
    has_time: bool = False,
) -> KinesumerError:
    """Return the library's error for a failed operation on a stream or shard.

    ``keys`` are those of the call. ``has_time`` says that it asked for a time.
    """
    action = f"dynamodb:{operation}"
    call = f"{action} on {resource}"
    message = f"{call}: {describe(fault)}"
    if fault.kind is Kind.THROTTLED:
        # More than two readers of a shard are refused, too. Both have the same remedy.
        is_read = operation == READ
        return (ShardThrottledError if is_read else SourceThrottledError)(message)
    passing = transient_error(fault, SourceUnavailableError, call, keys)
    if passing is not None:
        return passing
    if fault.code in _ERRORS:
        return _ERRORS[fault.code](message)
    if operation == PLACE and fault.code in _INVALID:
        if not has_time:
            return InvalidPositionError(message)
        is_unknown = any(word in fault.text.lower() for word in _TYPE_ARGUMENT)
        return (NoTimestampsError if is_unknown else StartInFutureError)(message)
    return fatal_error(fault, action, resource)
