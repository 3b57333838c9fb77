"""What becomes of a record that no call of the handler could take."""

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
from kinesumer.handlers.retry import Failure, RetryPolicy, retried
from kinesumer.handlers.work_item import Stoppage
from kinesumer.runtime.failure_log import logger
from kinesumer.telemetry.names import DEAD_LETTERS

if TYPE_CHECKING:
    from random import Random

    from kinesumer.dead_letters import DeadLetter, DeadLetters
    from kinesumer.handlers.executor import Gate
    from kinesumer.handlers.work_item import Stint
    from kinesumer.ports import Clock
    from kinesumer.telemetry.api import Telemetry

OnFailure = Literal["dead-letter", "stop-shard", "stop-client"]

PUTS = RetryPolicy(
    max_attempts=10,
    initial_delay_seconds=0.5,
    max_delay_seconds=10.0,
    non_retryable=(ConfigurationError, FatalError, DeadLetterTooLargeError),
)
"""About 45 s: an outage of the target that is longer stops the client."""


class LastResort(Protocol):
    """Decides about a record, after all attempts."""

    async def __call__(self, stint: Stint, failure: Failure) -> None:
        """Return if the record counts as handled. Raises Stoppage, or what ends all."""


class StopClient:
    """Ends ``run()`` with an error."""

    async def __call__(self, stint: Stint, failure: Failure) -> None:
        """Raise HandlerFailedError."""
        raise HandlerFailedError(
            f"{what_failed(stint, failure)}; the checkpoint stands before it. Correct "
            "the handler, or give run() dead_letters= to go on without such records"
        ) from failure.error


class StopShard:
    """Leaves the shard where it is, and goes on with the others."""

    async def __call__(self, stint: Stint, failure: Failure) -> None:
        """Raise Stoppage."""
        logger.error(
            "%s; nothing more of this shard is handled before another client takes it "
            "or this one starts again",
            what_failed(stint, failure),
            extra=failure_fields(stint, failure),
            exc_info=failure.error,
        )
        stint.lane.end()
        raise Stoppage


class Bury:
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

    async def __call__(self, stint: Stint, failure: Failure) -> None:
        """Return when the letter is stored. Raises DeadLetterNotStoredError."""
        from kinesumer.dead_letters import DeadLetter

        letter = DeadLetter.of(
            stint.records[stint.done],
            failure.error,
            app=self._app,
            attempts=failure.calls,
            failed_at=self._clock.wall(),
        )

        async def put() -> Exception | None:
            return await self._put(stint, letter)

        error = await put()
        if error is not None:
            log_letter_failure(stint, failure, error)
            first, sleep = Failure(error, 1), stint.lane.sleep
            last = await retried(PUTS, first, put, sleep, self._random)
            if last is not None:
                raise self._not_stored(stint, failure, last) from last.error
        self._telemetry.count(DEAD_LETTERS, letter.stream_arn)
        log_dead_letter(stint, failure)

    async def _put(self, stint: Stint, letter: DeadLetter) -> Exception | None:
        await self._gate(stint)
        stint.since, stint.doing = self._clock.now(), "the target of dead letters"
        try:
            await self._letters.put(letter)
        except Exception as error:
            return error
        finally:
            stint.since, stint.doing = None, "user code"
        return None

    def _not_stored(
        self, stint: Stint, failure: Failure, last: Failure
    ) -> DeadLetterNotStoredError:
        return DeadLetterNotStoredError(
            f"{what_failed(stint, failure)}; and its dead letter couldn't be stored "
            f"({error_text(last.error)}), so the checkpoint stands before it. Make the "
            "target take letters, and start again"
        )
