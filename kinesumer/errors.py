"""The errors of the library, by what the caller can do about them."""

from typing import Literal


class KinesumerError(Exception):
    """Root of all errors that kinesumer raises."""


class ConfigurationError(KinesumerError, ValueError):
    """A call, an option or a value can't work as written: correct it."""


class FatalError(KinesumerError):
    """Consuming can't continue until something outside this process is changed."""


class TransientError(KinesumerError):
    """A fault that passes: the library tries again; only ports raise it."""


# --- configuration and credentials -------------------------------------------------


class CredentialsError(ConfigurationError):
    """The standard chain has no credentials or no region."""


class AccessDeniedError(FatalError):
    """AWS denies an action on a resource; the message names both.

    ``advice`` is what to do, if allowing the action wouldn't help.
    """

    def __init__(
        self, action: str, resource: str, reason: str = "", advice: str = ""
    ) -> None:
        self.action, self.resource, self.reason = action, resource, reason
        self.advice = advice
        detail = f": {reason}" if reason else ""
        todo = advice or f"allow {action} on it for the credentials in use"
        super().__init__(f"access denied: {action} on {resource}{detail}; {todo}")

    def __reduce__(self) -> tuple[object, ...]:
        """Support pickling: the arguments differ from ``args``."""
        what = self.action, self.resource, self.reason, self.advice
        return type(self), what, vars(self)


# --- state store ---------------------------------------------------------------------


class StateStoreMissingError(FatalError):
    """The state store's table doesn't exist."""


class StateStoreSchemaError(FatalError):
    """The table exists, but its keys or index aren't those of a state store."""


class StateStoreRecreatedError(FatalError):
    """The state store was deleted or created again while the group was running."""


class CorruptRowError(FatalError):
    """A row of the state store can't be read; the message names key and attribute."""


# --- streams -------------------------------------------------------------------------


class StreamMissingError(FatalError):
    """The stream doesn't exist (or no longer exists)."""


class StreamRecreatedError(FatalError):
    """A stream was deleted and created again: stored positions are void."""


class InvalidPositionError(FatalError):
    """Kinesis never had a position in the shard that it is stored for."""


class DataLossError(FatalError):
    """Retention or a deletion removed records that were not read yet."""


class CorruptOffsetError(FatalError):
    """A Spark query's checkpoint holds an offset that can't be read."""


# --- membership ----------------------------------------------------------------------


class ClientIdInUseError(FatalError):
    """Another live process consumes under the same client id."""


BusyReason = Literal[
    "clients", "kcl-workers", "go-clients", "spark-query", "paused", "reset"
]


class GroupBusyError(FatalError):
    """Something else uses the group, and has to stop first.

    ``reason`` says what: ``clients`` of the app, ``kcl-workers`` of the KCL fleet,
    ``go-clients`` of Kinesumer for Go, a ``spark-query``, an operator's pause, under
    which no query starts (``paused``), or a ``reset`` of the app.
    """

    def __init__(self, reason: BusyReason, message: str) -> None:
        self.reason = reason
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        """Support pickling: the arguments differ from ``args``."""
        return type(self), (self.reason, str(self)), vars(self)


class CommitTimeoutError(KinesumerError, TimeoutError):
    """The state store didn't accept the last positions while the client was stopping.

    Other clients repeat what isn't stored, once this client's lease has run out.
    """


class ShardsLostError(KinesumerError):
    """Positions couldn't be stored, since other clients own these shards by now.

    ``shards`` lists them as (stream ARN, shard id) pairs. The new owners deliver their
    records again.
    """

    def __init__(self, shards: list[tuple[str, str]]) -> None:
        self.shards = shards
        names = ", ".join(f"{arn.rpartition('/')[2]}/{shard}" for arn, shard in shards)
        super().__init__(f"no longer owned, so not committed: {names}")

    def __reduce__(self) -> tuple[object, ...]:
        """Support pickling: the arguments differ from ``args``."""
        return type(self), (self.shards,), vars(self)


# --- what ports raise and the engine handles -----------------------------------------


class StoreUnavailableError(TransientError):
    """The state store didn't answer, or is overloaded; a write may have happened."""


class StoreThrottledError(StoreUnavailableError):
    """The state store throttled a request; the write didn't happen."""


class SourceUnavailableError(TransientError):
    """Kinesis didn't answer, or failed on its side."""


class SourceThrottledError(SourceUnavailableError):
    """Kinesis throttled a request for this shard or stream."""


class ShardThrottledError(SourceThrottledError):
    """A shard's five reads or 2 MB a second, shared by all apps, are used up."""


class SlowAnswerError(SourceUnavailableError):
    """Kinesis answers, but the answer took too long to arrive: a smaller one may do."""


class ExpiredIteratorError(TransientError):
    """The shard iterator is too old: ask for one after the last delivered record."""


class StartInFutureError(SourceUnavailableError):
    """Kinesis's clock has not reached a start by time yet: ask later, or earlier."""


class TrimmedPositionError(TransientError):
    """Retention has passed the position asked for."""


class ShardMissingError(KinesumerError):
    """Kinesis no longer knows the shard (its records have all expired)."""


# --- handlers ------------------------------------------------------------------------


class HandlerFailedError(KinesumerError):
    """The handler of ``run()`` raised for a record on each of its attempts.

    ``__cause__`` is what it raised. The checkpoint is before the record.
    """


# --- dead letters --------------------------------------------------------------------


class DeadLettersUnavailableError(TransientError):
    """A dead-letter target didn't answer, or is overloaded."""


class DeadLetterTooLargeError(KinesumerError):
    """A dead letter is larger than its target accepts: use a file or S3."""


class DeadLetterNotStoredError(KinesumerError):
    """Writing a failed record to the dead-letter target failed.

    ``__cause__`` says why. The checkpoint is before the record.
    """


class CorruptDeadLetterError(KinesumerError):
    """An entry of a dead-letter target isn't a dead letter."""
