"""Call handlers, retry failed calls, and isolate the records that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from kinesumer.consuming.suspects import Suspects
from kinesumer.errors import DecodeError, PoisonRecordError
from kinesumer.handlers.failure_policy import (
    HOLD_WAITS,
    FailurePolicy,
    call_again,
    log_first_failure,
)
from kinesumer.handlers.handler_function import Traceparent
from kinesumer.handlers.invokers import (
    Gate,
    HandlerInvoker,
    NotAwaitedError,
    RecordDecoding,
)
from kinesumer.handlers.retry_policy import RetryPolicy
from kinesumer.handlers.shard_queue import Failure, WorkItem
from kinesumer.model.records import Record
from kinesumer.ports import Clock
from kinesumer.runtime.threads import NoThreadError
from kinesumer.telemetry.api import Telemetry


@dataclass(frozen=True)
class HandlerExecutor:
    """Handles work items. Several items can be handled at the same time."""

    _invoker: HandlerInvoker
    _gate: Gate
    _retries: RetryPolicy
    _failure_policy: FailurePolicy
    _random: Random
    _clock: Clock
    _telemetry: Telemetry
    # Finds the traces to which the span of a call is linked; None if none is wanted.
    _traceparent: Traceparent | None
    # Infinite without a limit, and if failing records don't become dead letters.
    _dead_letter_limit: float
    # None if the handler gets records that aren't decoded.
    _decoding: RecordDecoding | None
    # Whether the handler takes single records. If so, only the first record that isn't
    # done can have failed.
    one_by_one: bool
    # Types of the errors that were logged with a traceback. Later errors of the same
    # type are logged without one.
    _kinds_logged: set[type[BaseException]] = field(default_factory=set)

    async def handle(self, item: WorkItem) -> None:
        """Handle all records of an item. Raises ShardStopped or a fatal error."""
        try:
            await self._handle(item)
        finally:
            if self._decoding is not None:
                self._decoding.release(item)

    async def _handle(self, item: WorkItem) -> None:
        if item.queue.owned.suspects is not None:
            await self._try_suspect(item, item.queue.owned.suspects)
        end = len(item.records)
        while item.done < end:
            error = await self._call(item, end)
            if error is not None:
                stop = item.done + 1 if self.one_by_one else end
                await self._resolve(item, stop, Failure(error, 1))

    async def _try_suspect(self, item: WorkItem, suspects: Suspects) -> None:
        """Note the isolated record before the handler gets it, or set poison aside."""
        record = item.records[0]
        if record.position != suspects.poison:
            await suspects.note_due()
            return
        error = PoisonRecordError(
            record.stream_arn, record.shard_id, record.position.text
        )
        await self._give_up(item, Failure(error, suspects.deaths.counted))

    async def _resolve(self, item: WorkItem, stop: int, failure: Failure) -> None:
        """Retry the failed records together. If they still fail, isolate the bad ones.

        Several records are bisected. A single record goes to the failure policy.
        """
        kind = type(failure.error)
        is_new = kind not in self._kinds_logged
        self._kinds_logged.add(kind)
        log_first_failure(item, stop, failure, self._clock.now(), is_new=is_new)
        call, sleep = partial(self._call, item, stop), item.queue.sleep
        last = await call_again(self._retries, failure, call, sleep, self._random)
        if last is None:
            return
        if stop - item.done > 1:
            await self._bisect(item, stop, last)
        else:
            await self._give_up(item, last)

    async def _give_up(self, item: WorkItem, failure: Failure) -> None:
        """Pass the next record to the failure policy, and count it as done.

        First hold the shard while it has too many dead letters.
        """
        last: Failure | None = failure
        item.failure = failure
        # Never call the handler again with a record that kills the process.
        if not isinstance(failure.error, PoisonRecordError):
            last = await self._hold(item, failure)
        if last is not None:
            item.failure = last
            await self._failure_policy(item, last)
            item.done += 1
        item.failure = None

    async def _hold(self, item: WorkItem, failure: Failure) -> Failure | None:
        """Call again while the shard is held; return the last failure, if any."""
        queue, calls = item.queue, 0
        while queue.excess_letters >= self._dead_letter_limit:
            queue.owned.held_by = failure.error
            calls += 1
            await queue.sleep(HOLD_WAITS.wait_seconds(calls, self._random))
            error = await self._call_first(item)
            if error is None:
                return None
            failure = Failure(error, failure.calls + 1)
        return failure

    async def _call_first(self, item: WorkItem) -> BaseException | None:
        """Call user code with the next record only. Return its or the decoder's error.

        Other than ``_call()``, it gives no record up.
        """
        if self._decoding is not None:
            try:
                await self._decoding(item, item.done + 1)
            except DecodeError as error:
                return error
        return await self._call(item, item.done + 1)

    async def _bisect(self, item: WorkItem, stop: int, failure: Failure) -> None:
        """Search for the failing records by halving. Each half is tried once."""
        middle = (item.done + stop) // 2
        for end in (middle, stop):
            error = await self._call(item, end)
            if error is None:
                continue
            part = Failure(error, failure.calls + 1)
            act = self._bisect if end - item.done > 1 else self._resolve
            await act(item, end, part)

    async def _call(self, item: WorkItem, stop: int) -> BaseException | None:
        """Call user code with the records up to ``stop``. Return its error."""
        while item.done < stop:
            if self._decoding is None:
                records: Sequence[Record[Any]] = item.up_to(stop)
            else:
                try:
                    records = await self._decoding(item, stop)
                except DecodeError as error:
                    self._note("decode_failures", item, error)
                    await self._give_up(item, Failure(error, 1))
                    continue
            await self._gate(item)
            before = item.done
            try:
                with self._span(item, item.done + len(records)):
                    await self._invoker(item, records)
            except (NotAwaitedError, NoThreadError):
                raise
            except Exception as error:
                self._note_failed(item, error)
                return error
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # This task wasn't cancelled, only something that user code awaited. If
                # the error ended this task, the shard would stop without an error.
                self._note_failed(item, error)
                return error
            finally:
                item.busy_since, item.thread = None, 0
                succeeded = item.done - before
                item.queue.note_handled(succeeded)
                calls = succeeded if self.one_by_one else min(succeeded, 1)
                item.queue.owned.outcomes.calls += calls
        return None

    def _span(self, item: WorkItem, stop: int) -> AbstractContextManager[object]:
        """Return a span for a call with the records of an item up to ``stop``."""
        shard, count = item.queue.owned.key, stop - item.done
        if (find := self._traceparent) is None:
            return self._telemetry.trace_batch(shard, count)
        found = (find(record) for record in item.records[item.done : stop])
        traceparents = [text for text in found if text]
        return self._telemetry.trace_batch(shard, count, traceparents)

    def _note_failed(self, item: WorkItem, error: BaseException) -> None:
        """Count a call that raised."""
        item.queue.owned.outcomes.failed += 1
        item.queue.owned.outcomes.calls += 1
        self._note("handler_failures", item, error)

    def _note(self, counter: str, item: WorkItem, error: BaseException) -> None:
        """Count an error of the next record, for telemetry and for operators."""
        owned = item.queue.owned
        self._telemetry.count(counter, owned.key.stream_arn)
        owned.outcomes.fail(error, item.current.position)
