"""Feed records to the handlers of an app, without AWS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Self

from kinesumer.consuming.streams import StreamLike
from kinesumer.errors import ConfigurationError
from kinesumer.handlers.handler import (
    Handler,
    HandlerDefaults,
    RunOptions,
    StreamHandlers,
    read_handlers,
)
from kinesumer.handlers.invokers import refuse_awaitable
from kinesumer.model.decoded_records import with_values
from kinesumer.model.records import Record
from kinesumer.model.streams import Stream, stream_name
from kinesumer.testing.values import batch, record


class AppTest:
    """Runs an app's lifespan, dependencies, middleware and handlers for a test.

    Use it as ``async with app.test() as test:``. It needs no AWS and no client.
    Handlers are called once: ``retries`` and ``dead_letters`` are parts of the client.
    """

    def __init__(
        self,
        app: str,
        opened: AbstractAsyncContextManager[Mapping[Stream, Handler]],
        options: Mapping[str, Any],
        find_stream: Callable[[StreamLike], Stream],
    ) -> None:
        """Create it for the app of this name; ``App.test()`` does so.

        ``options`` are its keyword arguments of ``run()``.
        """
        self._app, self._opened, self._options = app, opened, options
        self._find_stream = find_stream
        self._stack = AsyncExitStack()
        self._handlers: StreamHandlers

    async def __aenter__(self) -> Self:
        handlers = await self._stack.enter_async_context(self._opened)
        try:
            self._handlers = read_handlers(handlers, None, self._defaults())
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    async def feed(
        self,
        stream: StreamLike,
        *records: bytes | Record[Any],
        partition_key: str | None = "key",
    ) -> None:
        """Decode records, and call the stream's handler with them, as ``run()`` does.

        A handler of records is called with each of them in order, and a handler of
        batches once. An item is the data of a record with this ``partition_key``, or a
        record of ``kinesumer.testing.record()``.

        Raises ConfigurationError for an unknown stream, DecodeError for data that can't
        be decoded, and what the handler, its dependencies and middleware raise.
        """
        found = self._find_stream(stream)
        options = self._handlers.by_stream[found]
        made = [self._record(found, item, partition_key) for item in records]
        if options.decoder is not None:
            values = [await options.decoder.decode(each) for each in made]
            made = list(with_values(made, values))
        if not options.function.takes_batches:
            for each in made:
                await _call(options, each)
        elif made:
            # batch() checks that the records are of one shard.
            whole, source = batch(made), made[0].source
            assert source is not None
            kind = options.function.batch_kind
            await _call(options, kind(whole.records, whole.millis_behind, source))

    def _defaults(self) -> HandlerDefaults:
        """Return the app's arguments of ``run()`` that concern handlers."""
        known = HandlerDefaults.__optional_keys__
        defaults: Any = {n: self._options[n] for n in self._options if n in known}
        checked: HandlerDefaults = defaults
        return checked

    def _record(
        self, stream: Stream, item: bytes | Record[Any], key: str | None
    ) -> Record[Any]:
        if not isinstance(item, Record):
            made: Record[Any] = record(
                item, partition_key=key, stream=stream.name, app=self._app
            )
            return made
        if item.source is None or item.stream != stream_name(stream.name):
            raise ConfigurationError(
                f"{item!r:.200} isn't a record of stream {stream_name(stream.name)}: "
                "make it with kinesumer.testing.record(…, stream=…)"
            )
        return item


async def _call(options: RunOptions, item: Any) -> None:
    """Call a handler: in the event loop or, if it isn't async, in a thread."""
    if options.function.is_async:
        await options.function.call(item)
    else:
        refuse_awaitable(await asyncio.to_thread(options.function.call, item))
