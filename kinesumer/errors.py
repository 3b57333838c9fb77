"""The errors of the library. Their base classes show what the user has to do."""

import copyreg
from typing import Any, Literal, NamedTuple


class KinesumerError(Exception):
    """Root of all errors that kinesumer raises."""

    def __reduce__(self) -> tuple[object, ...]:
        """Support pickling if the arguments of ``__init__`` differ from ``args``."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class ConfigurationError(KinesumerError, ValueError):
    """A call, an option or a value is wrong and has to be corrected."""


class FatalError(KinesumerError):
    """Consuming can't continue until something outside this process is changed."""


class TransientError(KinesumerError):
    """A temporary fault of a service, after which the library usually tries again.

    ``lacks_credentials`` says that the service has no part in it: AWS refuses the
    credentials, or there are none.
    """

    lacks_credentials: bool = False


class ThreadRefusedError(TransientError, OSError):
    """The system starts no more threads for now."""


# --- configuration and credentials -------------------------------------------------


class CredentialsError(ConfigurationError):
    """The AWS SDK's standard provider chain finds no credentials or no region."""


class AccessDeniedError(FatalError):
    """AWS denies an action on a resource. The message names both.

    ``advice`` says what to do instead if allowing the action wouldn't help.
    """

    def __init__(
        self, action: str, resource: str, reason: str = "", advice: str = ""
    ) -> None:
        self.action: str = action
        self.resource: str = resource
        self.reason: str = reason
        self.advice = advice
        detail = f": {reason}" if reason else ""
        todo = advice or f"allow {action} on it for the credentials in use"
        super().__init__(f"access denied: {action} on {resource}{detail}; {todo}")


# --- state store ---------------------------------------------------------------------


class StateStoreMissingError(FatalError):
    """The state store's table doesn't exist."""


class StateStoreSchemaError(FatalError):
    """The table exists, but its keys or index aren't those of a state store."""


class StateStoreRecreatedError(FatalError):
    """The state store was deleted or created again while the group was running."""


class CorruptRowError(FatalError):
    """A row of the state store is invalid. The message names its key and attribute."""


# --- streams -------------------------------------------------------------------------


class StreamMissingError(FatalError):
    """The stream doesn't exist."""


class StreamRecreatedError(FatalError):
    """A stream was deleted and created again, so stored positions are invalid."""


class InvalidPositionError(FatalError):
    """A stored position has never existed in its shard."""


class KeyUnavailableError(FatalError):
    """The KMS key of a stream can't be used. Clients go on with other streams."""


class KeyDeniedError(KeyUnavailableError, AccessDeniedError):
    """KMS denies the use of a stream's key."""


class DataLossError(FatalError):
    """Records expired or were deleted before they were read."""


class CorruptOffsetError(FatalError):
    """A Spark query's checkpoint holds an offset that can't be read."""


# --- membership ----------------------------------------------------------------------


class ClientIdInUseError(FatalError):
    """Another running process uses the same client id."""


BusyReason = Literal[
    "clients", "kcl-workers", "go-clients", "spark-query", "paused", "reset"
]


class GroupBusyError(FatalError):
    """Something else that uses the group has to end first.

    ``reason`` says what it is: ``clients`` of the app, ``kcl-workers`` of the KCL
    fleet, ``go-clients`` of Kinesumer for Go, a ``spark-query``, a pause by an operator
    (``paused``), during which no query can start, or a ``reset`` of the app.
    """

    def __init__(self, reason: BusyReason, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class CommitTimeoutError(KinesumerError, TimeoutError):
    """The state store didn't accept the last positions while the client was stopping.

    After this client's lease has run out, other clients deliver again all records after
    the last stored positions.
    """


class ShardsLostError(KinesumerError):
    """Positions couldn't be stored, because other clients own these shards by now.

    ``shards`` lists them as (stream ARN, shard id) pairs. The new owners deliver again
    the records whose positions weren't stored.
    """

    def __init__(self, shards: list[tuple[str, str]]) -> None:
        self.shards = shards
        names = ", ".join(f"{arn.rpartition('/')[2]}/{shard}" for arn, shard in shards)
        super().__init__(
            f"no longer owned, so not committed: {names}; expect their records again"
        )


# --- what ports raise and the engine handles -----------------------------------------


class StoreUnavailableError(TransientError):
    """The state store didn't answer, or is overloaded. Writes may have been applied."""


class StoreThrottledError(StoreUnavailableError):
    """The state store throttled a request. Writes have not been applied."""


class SourceUnavailableError(TransientError):
    """Kinesis didn't answer, or failed on its side."""


class SourceThrottledError(SourceUnavailableError):
    """Kinesis throttled a request for this shard or stream."""


class ChildrenUnknownError(SourceThrottledError):
    """A closed shard of a table was read, but its children can't be asked for yet."""


class KeyThrottledError(SourceThrottledError):
    """KMS throttles the use of a stream's key."""


class ShardThrottledError(SourceThrottledError):
    """All apps together have exceeded a shard's five reads or 2 MB per second."""


class SlowAnswerError(SourceUnavailableError):
    """Kinesis's answer took too long to arrive. A smaller answer may succeed."""


class ExpiredIteratorError(TransientError):
    """The shard iterator is too old. The caller has to get a new one."""


class StartInFutureError(SourceUnavailableError):
    """A start time is in the future by Kinesis's clock."""


class TrimmedPositionError(TransientError):
    """The requested position is older than the stream's retention period."""


class ShardMissingError(KinesumerError):
    """The shard no longer exists, because all its records have expired."""


# --- decoding ------------------------------------------------------------------------


class DecodeError(KinesumerError, ValueError):
    """A record's data cannot be decoded. The message names the record.

    ``record`` is the record, and ``__cause__`` is the decoder's error. ``reason`` is
    the type of that error, and what of its text does not quote the record's data.
    """

    def __init__(self, message: str, record: Any = None, reason: str = "") -> None:
        self.record = record
        self.reason = reason
        super().__init__(message)


class SchemaRegistryUnavailableError(TransientError):
    """A schema registry didn't answer, or is overloaded."""


# --- handlers ------------------------------------------------------------------------


class HandlerFailedError(KinesumerError):
    """The handler of ``run()`` raised an error for a record on every attempt.

    ``__cause__`` is the handler's error. The checkpoint stays before the record.
    """


class PoisonRecordError(KinesumerError):
    """A record that killed each process whose user code received it.

    The shard stops before the record until an operator seeks, or the record becomes a
    dead letter. ``stream_arn``, ``shard_id`` and ``position`` name the record.
    """

    def __init__(self, stream_arn: str, shard_id: str, position: str) -> None:
        self.stream_arn: str = stream_arn
        self.shard_id: str = shard_id
        self.position: str = position
        stream = stream_arn.rpartition("/")[2]
        super().__init__(
            f"record {position} of stream {stream}, {shard_id} killed the processes "
            "that received it"
        )


# --- producers -----------------------------------------------------------------------


class FailedRecord(NamedTuple):
    """A record that wasn't put, or may not have been, and the reason."""

    data: bytes
    partition_key: str | None
    explicit_hash_key: str | None
    reason: str


class PutFailedError(KinesumerError):
    """Records weren't put, or may not have been.

    ``records`` lists them in the order in which they were passed to ``put()``, with the
    reasons. ``__cause__`` is the first error. If a request got no answer, Kinesis may
    have stored its records. To put a record in spite of that, pass it to ``put()``
    again.
    """

    def __init__(self, records: list[FailedRecord]) -> None:
        self.records = records
        reasons = dict.fromkeys(record.reason for record in records)
        first = "; ".join(list(reasons)[:MAX_REASONS])
        super().__init__(
            f"{len(records):,} of the records weren't put, or may not have been: "
            f"{first}; error.records has them: put them again, or store them elsewhere"
        )


# Number of different reasons in a message, which a person should read at a glance.
MAX_REASONS = 3


class RecordRefusedError(FatalError):
    """Kinesis refuses a record, such as one that is larger than its stream allows.

    Kinesis then refuses the whole request, and stores none of its records.
    """


# --- dead letters --------------------------------------------------------------------


class DeadLettersUnavailableError(TransientError):
    """A dead-letter target didn't answer, or is overloaded."""


class DeadLetterTooLargeError(KinesumerError):
    """A dead letter is too large for its target, even without its record's data."""


class DeadLetterNotStoredError(KinesumerError):
    """Writing a failed record to the dead-letter target failed.

    ``__cause__`` says why. The checkpoint stays before the record.
    """


class CorruptDeadLetterError(KinesumerError):
    """An entry of a dead-letter target can't be read as a dead letter."""
