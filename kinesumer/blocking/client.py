"""The client for code without asyncio. Its event loop runs in a separate thread."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast, overload

from anyio.from_thread import start_blocking_portal

from kinesumer import client as asynchronous
from kinesumer.blocking.delivery import Records, ThreadDelivery
from kinesumer.blocking.portal import LoopThread
from kinesumer.config import Config
from kinesumer.consuming.delivery_protocol import Starter
from kinesumer.consuming.streams import StreamLike, Streams
from kinesumer.coordination.connections import Ports
from kinesumer.decoding.decoders import (
    AsyncDecode,
    ConsumeKeywords,
    Decode,
    DecodeKeywords,
)
from kinesumer.errors import ConfigurationError, ThreadRefusedError
from kinesumer.handlers.handler import Handle, Handlers, RunKeywords
from kinesumer.model.batches import Batch
from kinesumer.model.owned import ShardAssignment, ShardLag, ShardPositions
from kinesumer.model.records import Record
from kinesumer.model.streams import ShardKey
from kinesumer.model.validation import ForThreads, require_flag
from kinesumer.runtime.stop_signals import StopSignals
from kinesumer.runtime.threads import refusal_errors, require_system_threads

if TYPE_CHECKING:
    # This import is slow.
    from kinesumer.aws.dynamodb import StateTable

V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])


class _Client(asynchronous.Kinesumer):
    """The asyncio client, which delivers records to a thread."""

    delivery: ThreadDelivery | None = None

    def __init__(self, app: str, at_exit: Callable[[], None], **options: Any) -> None:
        super().__init__(app, **options)
        self.loop_thread: LoopThread = LoopThread(self, at_exit)

    def _new_delivery(self, **options: Any) -> ThreadDelivery:
        return ThreadDelivery(self.loop_thread, ack=self.ack, **options)

    def _new_records(self, delivery: ThreadDelivery, start: Starter) -> Records[Any]:
        self.delivery = delivery
        return Records(delivery, start)


def _with_signature_of(method: Callable[..., object]) -> Callable[[F], F]:
    """Let ``help()`` name the arguments of a method of the asyncio client."""

    def decorate(function: F) -> F:
        function.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
        return function

    return decorate


class Kinesumer(ForThreads):
    """A client for code without asyncio: use it in ``with Kinesumer(...) as client:``.

    It has the arguments and the errors of ``kinesumer.Kinesumer``. Any thread may call
    its methods. One thread at a time may iterate over the records.
    """

    def __init__(
        self,
        app: str,
        *,
        table: str | None = None,
        region: str | None = None,
        client_id: str | None = None,
        kcl_table: str | None = None,
        session: object | None = None,
        config: Config = Config(),  # noqa: B008 - frozen
        stop_signals: bool = False,
        _ports: Ports | None = None,
    ) -> None:
        require_flag("stop_signals", stop_signals)
        self._client = _Client(
            app,
            self._at_exit,
            table=table,
            region=region,
            client_id=client_id,
            kcl_table=kcl_table,
            session=session,
            config=config,
            _ports=_ports,
        )
        self._loop_thread = self._client.loop_thread
        self._stop_signals = stop_signals
        self._signals = ExitStack()

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
        try:
            if self._stop_signals:
                self._signals.enter_context(StopSignals(self.leave))
        except ConfigurationError:
            self._loop_thread.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *exc_info: Any) -> None:
        if self._client.delivery is not None:
            # Leaving the block waits until another thread has finished its record. A
            # record of this thread can't be finished meanwhile, so nothing waits for
            # it.
            self._client.delivery.closer = threading.current_thread()
        with self._signals:
            self._loop_thread.__exit__(*exc_info)

    def _at_exit(self) -> None:
        self.__exit__(None, None, None)

    @overload
    def consume(
        self, streams: Streams, **options: Unpack[ConsumeKeywords]
    ) -> Records: ...
    @overload
    def consume(
        self, streams: Streams, *, decode: UnionType, **options: Unpack[DecodeKeywords]
    ) -> Records[Any]: ...
    @overload
    def consume(
        self,
        streams: Streams,
        *,
        decode: AsyncDecode[V],
        **options: Unpack[DecodeKeywords],
    ) -> Records[V]: ...
    @overload
    def consume(
        self, streams: Streams, *, decode: Decode[V], **options: Unpack[DecodeKeywords]
    ) -> Records[V]: ...
    @_with_signature_of(asynchronous.Kinesumer.consume)
    def consume(
        self, streams: StreamLike | Sequence[StreamLike], **options: Any
    ) -> Records[Any]:
        """Return an iterator over the records of some streams.

        The arguments and the errors are those of ``kinesumer.Kinesumer.consume()``.
        Records are decoded in the calling thread. What an async function awaits runs on
        the client's event loop. ``on_assigned`` and ``on_revoked`` run in other threads
        than the one that iterates.
        """
        self._loop_thread.check_open()
        records: Any = self._client.consume(streams, **options)
        return cast("Records[Any]", records)

    @overload
    def run(
        self, streams: Streams, handler: Handle[bytes], **options: Unpack[RunKeywords]
    ) -> None: ...
    @overload
    def run(
        self,
        streams: Streams,
        handler: Handle[V],
        *,
        decode: Decode[V] | UnionType,
        **options: Unpack[RunKeywords],
    ) -> None: ...
    @overload
    def run(
        self, streams: Handlers, *, decode: Any = ..., **options: Unpack[RunKeywords]
    ) -> None: ...
    @_with_signature_of(asynchronous.Kinesumer.run)
    def run(
        self,
        streams: StreamLike | Sequence[StreamLike] | Handlers,
        handler: Handle[Any] | None = None,
        *,
        stop_signals: bool = False,
        **options: Any,
    ) -> None:
        """Call ``handler`` with each record or batch, until the client leaves.

        The arguments are those of ``kinesumer.Kinesumer.run()``. A handler that isn't
        async runs in other threads, not in the calling thread: in up to ``concurrency``
        threads for each shard.
        """
        require_flag("stop_signals", stop_signals)
        run: Any = self._client.run  # the type of partial() cannot have overloads
        with ExitStack() as signals:
            if stop_signals and not self._stop_signals:
                signals.enter_context(StopSignals(self.leave))
            self._loop_thread.call(partial(run, streams, handler, **options))

    def ack(self, record: Record[Any] | Batch[Any]) -> None:
        """Acknowledge a record or a batch, in any order and from any thread.

        This needs ``commit="manual"``. The checkpoint of a shard is the record right
        before the first record that isn't acknowledged.
        """
        if self._client.config.commit != "manual":
            raise ConfigurationError(
                'ack() needs manual commits: set Config(commit="manual")'
            )
        assert record.fence
        if self._client.delivery is None:
            raise ConfigurationError("nothing is consumed yet: iterate over consume()")
        self._client.delivery.ack_soon(record)

    def commit(self) -> None:
        """Store the positions of all done records, and wait until they are stored.

        Raises ShardsLostError if other clients own some of the shards now. The error
        names these shards. Their positions couldn't be stored.
        """
        self._loop_thread.call(self._client.commit)

    def refresh(self, streams: StreamLike | Sequence[StreamLike] | Handlers) -> None:
        """Consume these streams, or those in ``{stream: handler}``, and no others."""
        self._loop_thread.call(self._client.refresh, streams)

    def assignment(self) -> dict[ShardKey, ShardAssignment]:
        """Return the shards that this client owns now, with their epochs and states.

        ``assignment()``, ``positions()`` and ``lag()`` make no request to AWS, and
        return nothing before the start. Any thread may call them.
        """
        return self._loop_thread.call(_on_loop, self._client.assignment)

    def positions(self) -> dict[ShardKey, ShardPositions]:
        """Return the stored position and the done position of each owned shard."""
        return self._loop_thread.call(_on_loop, self._client.positions)

    def lag(self) -> dict[ShardKey, ShardLag]:
        """Return how far this client is behind in each owned shard."""
        return self._loop_thread.call(_on_loop, self._client.lag)

    def pause(
        self, stream: str | None = None, shard: str | None = None, reason: str = ""
    ) -> None:
        """Pause a stream, a shard or everything for all clients, until ``resume()``."""
        self._loop_thread.call(partial(self._client.pause, stream, shard, reason))

    def resume(self, stream: str | None = None, shard: str | None = None) -> None:
        """End the pause of a stream, a shard or everything for all clients."""
        self._loop_thread.call(partial(self._client.resume, stream, shard))

    def leave(self) -> None:
        """Begin to hand over all shards, and return at once.

        The iteration continues until all shards are handed over. Signal handlers may
        call this method; ``stop_signals=True`` does so at SIGTERM and SIGINT.
        """
        self._loop_thread.begin(self._client.leave)


async def _on_loop(function: Callable[[], V]) -> V:
    return function()


def create_table(
    table: str | None = None,
    *,
    region: str | None = None,
    session: object | None = None,
    point_in_time_recovery: bool = False,
    deletion_protection: bool = False,
) -> StateTable:
    """Create the state store's table and wait until it is active, or verify it.

    The arguments, the result and the errors are those of ``kinesumer.create_table()``.
    """
    from kinesumer.aws import dynamodb

    create = partial(
        dynamodb.create_table,
        table,
        region=region,
        session=session,
        point_in_time_recovery=point_in_time_recovery,
        deletion_protection=deletion_protection,
    )
    require_system_threads()
    with (
        refusal_errors("the thread of the event loop", ThreadRefusedError),
        start_blocking_portal("asyncio", name="kinesumer") as portal,
    ):
        return portal.call(create)
