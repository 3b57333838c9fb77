"""What to do with a record that failed on its last attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from kinesumer.errors import (
    ConfigurationError,
    DeadLetterNotStoredError,
    DeadLetterTooLargeError,
    FatalError,
    HandlerFailedError,
)
from kinesumer.handlers.failure_log import (
    error_text,
    failure_fields,
    log_dead_letter,
    log_letter_failure,
    what_failed,
)
from kinesumer.handlers.retry import Failure, RetryPolicy, call_again
from kinesumer.handlers.shard_queue import ShardStopped
from kinesumer.runtime.failure_log import logger
from kinesumer.telemetry.names import DEAD_LETTERS

if TYPE_CHECKING:
    from random import Random

    from kinesumer.dead_letters import DeadLetter, DeadLetters
    from kinesumer.handlers.permits import Gate
    from kinesumer.handlers.shard_queue import WorkItem
    from kinesumer.ports import Clock
    from kinesumer.telemetry.api import Telemetry

OnFailure = Literal["dead-letter", "stop-shard", "stop-client"]

PUTS = RetryPolicy(
    max_attempts=10,
    initial_delay_seconds=0.5,
    max_delay_seconds=10.0,
    non_retryable=(ConfigurationError, FatalError, DeadLetterTooLargeError),
)
"""About 45 s; a longer outage of the target stops the client."""


class FailurePolicy(Protocol):
    """Decides what to do with a record after its last attempt."""

    async def __call__(self, item: WorkItem, failure: Failure) -> None:
        """Return if the record counts as handled, else raise."""


class StopClientPolicy:
    """Ends ``run()`` with an error."""

    async def __call__(self, item: WorkItem, failure: Failure) -> None:
        """Raise HandlerFailedError."""
        raise HandlerFailedError(
            f"{what_failed(item, failure)}; the checkpoint is before it. Correct "
            "the handler, or give run() dead_letters= to go on without such records"
        ) from failure.error


class StopShardPolicy:
    """Stops the shard, and goes on with the others."""

    async def __call__(self, item: WorkItem, failure: Failure) -> None:
        """Raise ShardStopped."""
        logger.error(
            "%s; nothing more of this shard is handled before another client takes it "
            "or this one starts again",
            what_failed(item, failure),
            extra=failure_fields(item, failure),
            exc_info=failure.error,
        )
        item.queue.end()
        raise ShardStopped


class DeadLetterPolicy:
    """Puts the record into a target of dead letters, and goes on after it."""

    def __init__(
        self,
        letters: DeadLetters,
        app: str,
        clock: Clock,
        random: Random,
        gate: Gate,
        telemetry: Telemetry,
    ) -> None:
        self._letters = letters
        self._app = app
        self._clock = clock
        self._random = random
        self._gate = gate
        self._telemetry = telemetry

    async def __call__(self, item: WorkItem, failure: Failure) -> None:
        """Store the dead letter. Raises DeadLetterNotStoredError."""
        from kinesumer.dead_letters import DeadLetter

        letter = DeadLetter.of(
            item.records[item.done],
            failure.error,
            app=self._app,
            attempts=failure.calls,
            failed_at=self._clock.wall(),
        )

        async def put() -> Exception | None:
            return await self._put(item, letter)

        error = await put()
        if error is not None:
            log_letter_failure(item, failure, error)
            first, sleep = Failure(error, 1), item.queue.sleep
            last = await call_again(PUTS, first, put, sleep, self._random)
            if last is not None:
                raise self._not_stored(item, failure, last) from last.error
        self._telemetry.count(DEAD_LETTERS, letter.stream_arn)
        log_dead_letter(item, failure)

    async def _put(self, item: WorkItem, letter: DeadLetter) -> Exception | None:
        await self._gate(item)
        item.busy_since, item.activity = self._clock.now(), "the target of dead letters"
        try:
            await self._letters.put(letter)
        except Exception as error:
            return error
        finally:
            item.busy_since, item.activity = None, "user code"
        return None

    def _not_stored(
        self, item: WorkItem, failure: Failure, last: Failure
    ) -> DeadLetterNotStoredError:
        return DeadLetterNotStoredError(
            f"{what_failed(item, failure)}; and its dead letter couldn't be stored "
            f"({error_text(last.error)}), so the checkpoint is before it. Repair the "
            "target, and start again"
        )
