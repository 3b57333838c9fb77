"""Every error of the library: one root, split by what the caller can do about it."""

from typing import Literal


class KinesumerError(Exception):
    """Root of all errors that kinesumer raises."""


class ConfigurationError(KinesumerError, ValueError):
    """What was asked for can't work as written: correct the call, option or value."""


class FatalError(KinesumerError):
    """Consuming can't go on until somebody changes something outside this process."""


class TransientError(KinesumerError):
    """A fault that passes: the library itself tries again; only ports raise it."""


# --- configuration and credentials -------------------------------------------------


class CredentialsError(ConfigurationError):
    """No credentials or no region were found in the standard chain."""


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
        """Let it be passed on between processes."""
        what = self.action, self.resource, self.reason, self.advice
        return type(self), what, vars(self)


# --- state store ---------------------------------------------------------------------


class StateStoreMissingError(FatalError):
    """The state store's table doesn't exist."""


class StateStoreSchemaError(FatalError):
    """The table exists, but its keys or index aren't those of a state store."""


class StateStoreRecreatedError(FatalError):
    """The state store was deleted or made anew while the group was running."""


class CorruptRowError(FatalError):
    """A row of the state store can't be read; the message names key and attribute."""


# --- streams -------------------------------------------------------------------------


class StreamMissingError(FatalError):
    """The stream doesn't exist (or no longer exists)."""


class StreamRecreatedError(FatalError):
    """A stream was deleted and made anew under the same name: positions are void."""


class InvalidPositionError(FatalError):
    """Kinesis says that a position was never in the shard that it was stored for."""


class DataLossError(FatalError):
    """Records still to be read are gone: retention or a deletion took them."""


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
    """The state store didn't take the last positions while the client was stopping.

    Others deliver again what isn't stored, once this client's lease has run out.
    """


class ShardsLostError(KinesumerError):
    """Positions couldn't be stored: other clients own these shards by now.

    ``shards`` lists them as (stream ARN, shard id) pairs. Their records will be, or
    were, delivered again by the new owners.
    """

    def __init__(self, shards: list[tuple[str, str]]) -> None:
        self.shards = shards
        names = ", ".join(f"{arn.rpartition('/')[2]}/{shard}" for arn, shard in shards)
        super().__init__(f"no longer owned, so not committed: {names}")

    def __reduce__(self) -> tuple[object, ...]:
        """Let it be passed on between processes."""
        return type(self), (self.shards,), vars(self)


# --- what ports raise and the engine handles -----------------------------------------


class StoreUnavailableError(TransientError):
    """The state store didn't answer, or refused for now; a write may have happened."""


class StoreThrottledError(StoreUnavailableError):
    """The state store throttles; the write didn't happen."""


class SourceUnavailableError(TransientError):
    """Kinesis didn't answer, or failed on its side."""


class SourceThrottledError(SourceUnavailableError):
    """Kinesis throttles this shard or stream."""


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
    """The handler given to ``run()`` raised at a record as often as it may be tried.

    ``__cause__`` is what it raised. The checkpoint stands before the record.
    """


# --- dead letters --------------------------------------------------------------------


class DeadLettersUnavailableError(TransientError):
    """A target of dead letters didn't answer, or refused for now."""


class DeadLetterTooLargeError(KinesumerError):
    """A dead letter is larger than its target takes: choose a file or S3."""


class DeadLetterNotStoredError(KinesumerError):
    """A record that no call could handle can't be stored as a dead letter either.

    ``__cause__`` says why. The checkpoint stands before the record.
    """


class CorruptDeadLetterError(KinesumerError):
    """What stands in a target of dead letters isn't one."""
