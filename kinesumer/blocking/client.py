"""The client for code without asyncio, on an event loop in a thread of its own."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Self

from kinesumer import client as asynchronous
from kinesumer.blocking.delivery import Records, ThreadDelivery, ThreadIterator
from kinesumer.blocking.portal import LoopThread
from kinesumer.client import _ClientStart
from kinesumer.config import Config
from kinesumer.errors import ConfigurationError
from kinesumer.handlers import RetryPolicy
from kinesumer.model.streams import Start
from kinesumer.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from kinesumer.client import Handle
    from kinesumer.consuming.streams import StreamLike
    from kinesumer.dead_letters.base import DeadLetterFunction
    from kinesumer.handlers import Middleware
    from kinesumer.handlers.failure_policy import OnFailure
    from kinesumer.handlers.tracing import Traceparent
    from kinesumer.model.records import Record


class _Client(asynchronous.Kinesumer):
    """A client that delivers to a thread."""

    closer: threading.Thread | None = None
    """The thread that ends the block."""

    def new_iterator(
        self,
        loop_thread: LoopThread,
        streams: StreamLike | Sequence[StreamLike],
        start: Start,
    ) -> ThreadIterator:
        checked = self._check(streams, start)
        auto = self.config.commit == "auto"
        delivery = ThreadDelivery(SystemClock(), acks_by_asking=auto, ack=self.ack)
        self._start = _ClientStart(self, delivery, checked, start)
        return ThreadIterator(loop_thread, delivery, self._start)

    def _is_in_use(self) -> bool:
        delivery = None if self._start is None else self._start.delivery
        if not isinstance(delivery, ThreadDelivery):
            return super()._is_in_use()
        user = delivery.user
        return user is not None and user is not self.closer and user.is_alive()


class Kinesumer:
    """A client for code without asyncio: use it in ``with Kinesumer(...) as client:``.

    It has the arguments and the errors of ``kinesumer.Kinesumer``. Any thread may call
    its methods. One thread at a time may iterate over the records.
    """

    def __init__(
        self,
        app: str,
        *,
        table: str,
        region: str | None = None,
        client_id: str | None = None,
        session: object | None = None,
        config: Config = Config(),  # noqa: B008 - frozen
    ) -> None:
        self._client = _Client(
            app,
            table=table,
            region=region,
            client_id=client_id,
            session=session,
            config=config,
        )
        self._loop_thread = LoopThread(self._client)
        self._iterator: ThreadIterator | None = None

    @property
    def app(self) -> str:
        """The group's name."""
        return self._client.app

    @property
    def client_id(self) -> str:
        """The client's id."""
        return self._client.client_id

    def __enter__(self) -> Self:
        self._loop_thread.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.closer = threading.current_thread()
        self._loop_thread.__exit__(kind, error, trace)

    def consume(
        self, streams: StreamLike | Sequence[StreamLike], *, start: Start = Start.LATEST
    ) -> Records:
        """Return the records of streams: names, ARNs or ``Stream`` objects.

        ``start`` is where the group begins with a stream that it has no positions for.
        The client starts when the first record is requested. That request raises
        StreamMissingError, StateStoreMissingError, AccessDeniedError, CredentialsError
        and the like. Raises ConfigurationError if an argument can't be used.
        """
        self._loop_thread.check_open()
        self._iterator = self._client.new_iterator(self._loop_thread, streams, start)
        return Records(self._iterator)

    def run(
        self,
        streams: StreamLike | Sequence[StreamLike],
        handler: Handle,
        *,
        start: Start = Start.LATEST,
        batch: bool | None = None,
        concurrency: int = 1,
        on_failure: OnFailure | None = None,
        dead_letters: str | DeadLetterFunction | None = None,
        retries: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
        middleware: Sequence[Middleware] = (),
        traceparent: str | Traceparent | None = None,
    ) -> None:
        """Call ``handler`` with each record or batch, until the client leaves.

        The arguments are those of ``kinesumer.Kinesumer.run()``. Plain functions run in
        threads of their own, one or more per shard, not in the calling thread.
        """
        running = partial(
            self._client.run,
            streams,
            handler,
            start=start,
            batch=batch,
            concurrency=concurrency,
            on_failure=on_failure,
            dead_letters=dead_letters,
            retries=retries,
            middleware=middleware,
            traceparent=traceparent,
        )
        self._loop_thread.call(running)

    def ack(self, record: Record) -> None:
        """Acknowledge a record, in any order and thread (``commit="manual"``).

        The checkpoint is the end of the contiguous done prefix of its shard.
        """
        if self._client.config.commit != "manual":
            raise ConfigurationError('ack() needs Config(commit="manual")')
        assert record.fence
        if self._iterator is None:
            raise ConfigurationError("nothing is consumed yet: iterate over consume()")
        self._iterator.delivery.ack_soon(record, self._loop_thread.loop)

    def commit(self) -> None:
        """Store what is done, and return when it is stored.

        Raises ShardsLostError, which names the shards whose positions couldn't be
        stored because other clients own them by now.
        """
        self._loop_thread.call(self._client.commit)

    def refresh(self, streams: StreamLike | Sequence[StreamLike]) -> None:
        """Consume these streams from now on, in place of the former ones."""
        self._loop_thread.call(self._client.refresh, streams)

    def pause(
        self, stream: str | None = None, shard: str | None = None, reason: str = ""
    ) -> None:
        """Pause a stream, a shard or all for the whole group, until it is resumed."""
        self._loop_thread.call(partial(self._client.pause, stream, shard, reason))

    def resume(self, stream: str | None = None, shard: str | None = None) -> None:
        """Let the group consume again what was paused."""
        self._loop_thread.call(partial(self._client.resume, stream, shard))

    def leave(self) -> None:
        """Begin to hand all shards over, and return at once.

        The iteration goes on meanwhile, and ends by itself. Signal handlers may call
        it: ``signal.signal(signal.SIGTERM, lambda *_: client.leave())``.
        """
        self._loop_thread.begin(self._client.leave)
