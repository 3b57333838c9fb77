"""Retry failed calls, log failures, and act on records that fail after all retries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from kinesumer.errors import (
    ConfigurationError,
    DeadLetterNotStoredError,
    DeadLetterTooLargeError,
    DecodeError,
    FatalError,
    HandlerFailedError,
    PoisonRecordError,
    TransientError,
)
from kinesumer.handlers.dead_letters.letter import DeadLetter, DeadLetters
from kinesumer.handlers.invokers import Gate
from kinesumer.handlers.retry_policy import RetryPolicy
from kinesumer.handlers.shard_queue import (
    Failure,
    NoTimeError,
    ShardStopped,
    WorkItem,
)
from kinesumer.model.json_decoding import MAX_CAUSE_CHARACTERS
from kinesumer.ports import Clock
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.text import escape_unprintable, safe_str
from kinesumer.telemetry.api import Telemetry

# A policy returns normally if the failed record counts as handled. Otherwise it
# raises an error.
FailurePolicy = Callable[[WorkItem, Failure], Awaitable[None]]

# Waits between two calls while a shard is held. A dependency that is back is noticed
# within half a minute, and is not flooded before.
HOLD_WAITS = RetryPolicy(initial_delay_seconds=1.0, max_delay_seconds=30.0)
# The attempts take about 45 s. A longer outage of the target stops the client.
PUT_RETRIES = RetryPolicy(
    max_attempts=10,
    initial_delay_seconds=0.5,
    max_delay_seconds=10.0,
    non_retryable=(ConfigurationError, FatalError, DeadLetterTooLargeError),
)


async def call_again(
    policy: RetryPolicy,
    failure: Failure,
    call: Callable[[], Awaitable[BaseException | None]],
    sleep: Callable[[float], Awaitable[None]],
    random: Random,
) -> Failure | None:
    """Call again after a first failure, as often as the policy allows.

    ``call`` returns its error, or None if it succeeded. Return the last failure, or
    None if a call succeeded. If there is no time for the next wait, make no more calls.
    """
    failures = 1
    while failures < policy.max_attempts:
        if isinstance(failure.error, policy.non_retryable):
            return failure
        try:
            await sleep(policy.wait_seconds(failures, random))
        except NoTimeError:
            return failure
        error = await call()
        if error is None:
            return None
        failures += 1
        failure = Failure(error, failure.calls + 1)
    return failure


async def stop_client(item: WorkItem, failure: Failure) -> None:
    """End ``run()`` by raising HandlerFailedError."""
    raise HandlerFailedError(
        f"{what_failed(item, failure)}; the checkpoint stays before it. Correct "
        "the handler, or give run() dead_letters= to go on without such records"
    ) from failure.error


async def stop_shard(item: WorkItem, failure: Failure) -> None:
    """Stop only this shard by raising ShardStopped."""
    _log_stop(
        item,
        failure,
        "its shard stops until another client takes it or this client restarts",
    )
    item.queue.end()
    item.queue.owned.stopped_by = failure.error
    item.queue.owned.stop_reading()
    raise ShardStopped


async def report_to_lambda(item: WorkItem, failure: Failure) -> None:
    """End this shard's part of a Lambda invocation by raising ShardStopped."""
    _log_stop(item, failure, "Lambda repeats the shard's records from there on")
    item.queue.end()
    item.queue.owned.stopped_by = failure.error
    raise ShardStopped


def _log_stop(item: WorkItem, failure: Failure, consequence: str) -> None:
    logger.error(
        "%s; %s",
        what_failed(item, failure),
        consequence,
        extra=failure_fields(item, failure),
        exc_info=_to_log(failure.error),
    )


@dataclass(frozen=True)
class DeadLetterPolicy:
    """Stores the failed record as a dead letter, and continues with the next one."""

    _letters: DeadLetters
    _app: str
    _clock: Clock
    _random: Random
    _gate: Gate
    _telemetry: Telemetry

    async def __call__(self, item: WorkItem, failure: Failure) -> None:
        """Store the dead letter. Raises DeadLetterNotStoredError."""
        letter = DeadLetter.of(
            item.records[item.done],
            failure.error,
            app=self._app,
            attempts=failure.calls,
            failed_at=self._clock.wall(),
        )

        async def put() -> Exception | None:
            while (
                isinstance(error := await self._put(item, letter), TransientError)
                and error.lacks_credentials
            ):
                # The client goes on when it has credentials again.
                await item.queue.sleep(PUT_RETRIES.max_delay_seconds)
            return error

        # The checkpoint stays before the record until its letter is stored.
        error = await put()
        if error is not None:
            fields = failure_fields(item, failure) | {"error": error_text(error)}
            logger.warning(
                "the dead letter of record %s of stream %s, %s couldn't be stored, "
                "trying again: %s",
                *_names(item),
                fields["error"],
                extra=fields,
            )
            first, sleep = Failure(error, 1), item.queue.sleep
            last = await call_again(PUT_RETRIES, first, put, sleep, self._random)
            if last is not None:
                raise DeadLetterNotStoredError(
                    f"{what_failed(item, failure)}; and its dead letter couldn't be "
                    f"stored ({error_text(last.error)}), so the checkpoint is before "
                    "it. Repair the target, and start again"
                ) from last.error
        self._telemetry.count("dead_letters", letter.stream_arn)
        item.queue.owned.outcomes.letters += 1
        item.queue.excess_letters += 1
        more = repeats(item, "letter", self._clock.now())
        if more is None:
            return
        fields = failure_fields(item, failure)
        logger.warning(
            "a dead letter is stored for record %s of stream %s, %s, attempt %d: %s%s",
            *_names(item),
            failure.calls,
            fields["error"],
            more,
            extra=fields,
        )

    async def _put(self, item: WorkItem, letter: DeadLetter) -> Exception | None:
        # Wait for a valid lease. If another client owns the shard now, this raises
        # ShardStopped, and the other client stores the letter.
        await self._gate(item)
        item.busy_since, item.activity = self._clock.now(), "the dead-letter target"
        try:
            await self._letters.put(letter)
        except Exception as error:
            return error
        finally:
            item.busy_since, item.activity = None, "user code"
        return None


def what_failed(item: WorkItem, failure: Failure) -> str:
    """Return a line with the failed record, the number of failures and the error."""
    is_named = isinstance(failure.error, DecodeError) and failure.error.record
    if is_named or isinstance(failure.error, PoisonRecordError):
        return str(failure.error)
    times = "once" if failure.calls == 1 else f"{failure.calls} times"
    number, stream, shard_id = _names(item)
    return (
        f"the handler failed {times} at record {number} of stream {stream}, "
        f"{shard_id}: {error_text(failure.error)}"
    )


def error_text(error: BaseException) -> str:
    """Return an error's type and text for one line of a log."""
    text = escape_unprintable(safe_str(error))[:MAX_CAUSE_CHARACTERS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def failure_fields(item: WorkItem, failure: Failure) -> dict[str, object]:
    """Return the fields of a log line about the record that failed."""
    record = item.current
    return {
        **item.queue.owned.log_fields,
        "sequence_number": record.sequence_number,
        "sub_sequence_number": record.sub_sequence_number,
        "attempt": failure.calls,
        "error": error_text(failure.error),
    }


def repeats(
    item: WorkItem, line: str, now: float, *, is_new: bool = False
) -> str | None:
    """Return the end of a log line that repeats, with the number of lines left out.

    Return None if the line is left out, because the shard had one within a minute.
    A line that ``is_new`` is never left out.
    """
    left_out = item.queue.lines.left_out(line, now, is_new=is_new)
    if left_out is None:
        return None
    return f" ({left_out} more since the last such line)" if left_out else ""


def log_first_failure(
    item: WorkItem, stop: int, failure: Failure, now: float, *, is_new: bool
) -> None:
    """Log that the records of an item up to ``stop`` failed for the first time.

    ``is_new`` is true for the first error of its type, which gets a traceback.
    """
    number, stream, shard_id = _names(item)
    count, fields = stop - item.done, failure_fields(item, failure)
    subject = f"record {number}"
    if count > 1:
        subject = f"a batch of {count} records from {number} on"
        fields["records"] = count
    line = "failed batch" if count > 1 else "failed record"
    more = repeats(item, line, now, is_new=is_new)
    if more is None:
        return
    logger.warning(
        "the handler failed at %s of stream %s, %s, attempt %d: %s%s",
        subject,
        stream,
        shard_id,
        failure.calls,
        fields["error"],
        more,
        extra=fields,
        exc_info=_to_log(failure.error) if is_new else None,
    )


def log_end(
    item: WorkItem, error: BaseException, what_ends: str = "run() ends"
) -> None:
    """Log the error that ends ``run()``, or what else is given."""
    failure = item.failure or Failure(error, 1)
    logger.error(
        "%s: %s",
        what_ends,
        escape_unprintable(safe_str(error)),
        extra=failure_fields(item, failure),
        exc_info=_to_log(error),
    )


def _names(item: WorkItem) -> tuple[str, str, str]:
    """Return the position, stream and shard of an item's current record."""
    record = item.current
    number, part = record.position
    name = number if part is None else f"{number}:{part}"
    return name, record.stream, record.shard_id


def _to_log(error: BaseException) -> BaseException | None:
    """Return an error whose traceback may be logged.

    Return None if an error in it has a decoder's error as its cause, which may quote
    the record's data.
    """
    part: BaseException | None = error
    while part is not None:
        if isinstance(part, DecodeError):
            return None
        part = part.__cause__ or part.__context__
    return error
