"""An application: its streams, its handlers as decorators, and what they need."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from kinesumer.app.dependencies import Overrides
from kinesumer.app.injection import ProcessScope
from kinesumer.client import Kinesumer
from kinesumer.config import Config
from kinesumer.consuming.streams import StreamLike, as_streams
from kinesumer.coordination.connections import Identity
from kinesumer.errors import ConfigurationError
from kinesumer.handlers.handler import Handler, HandlerKeywords
from kinesumer.model.owned import OnAssigned, OnRevoked
from kinesumer.model.streams import StartLike, Stream, stream_name
from kinesumer.model.times import UntilLike
from kinesumer.model.validation import require_function, require_list

if TYPE_CHECKING:
    from kinesumer.testing.app import AppTest

F = TypeVar("F", bound=Callable[..., Any])
# A function with the decorator ``@asynccontextmanager``.
Lifespan = Callable[["App"], AbstractAsyncContextManager[Mapping[str, Any] | None]]

NO_OVERRIDES: Overrides = MappingProxyType({})


class AppKeywords(HandlerKeywords, total=False):
    """The keyword arguments of ``run()`` that an app takes, except ``decode=``."""

    start: StartLike
    until: UntilLike | None
    on_assigned: OnAssigned | None
    on_revoked: OnRevoked | None


class App:
    """An application that consumes streams by handlers, for ``kinesumer run``.

    ``name`` names the group, as the ``app`` of ``Kinesumer`` does. ``streams`` are the
    streams that handlers may name; by default, the handlers' own. ``table``,
    ``region``, ``session`` and ``config`` are those of ``Kinesumer``; the options of
    ``kinesumer run`` take precedence. ``decode`` and ``options`` are keyword arguments
    of ``Kinesumer.run()``, such as ``start``, ``dead_letters`` and ``middleware``: the
    defaults of all handlers.

    ``lifespan`` is a function of the app that returns an async context manager: what
    precedes its ``yield`` runs before the first record, and the rest after the last
    one. If it yields a mapping, ``app.state`` has its values as attributes.

    Raises ConfigurationError for names and streams that can't be used.
    """

    def __init__(
        self,
        name: str,
        *,
        streams: Sequence[StreamLike] | None = None,
        lifespan: Lifespan | None = None,
        table: str | None = None,
        region: str | None = None,
        session: object | None = None,
        config: Config = Config(),  # noqa: B008 - frozen
        decode: Any = None,
        **options: Unpack[AppKeywords],
    ) -> None:
        # Refuse now what a client would refuse later.
        Identity.checked(name, name, table, region, config)
        if streams is not None:
            streams = require_list("streams", streams)
        if lifespan is not None:
            require_function("lifespan", lifespan)
        unknown = options.keys() - AppKeywords.__optional_keys__
        if unknown:
            raise ConfigurationError(
                f"App() has no argument {', '.join(sorted(unknown))}: correct its name"
            )
        self.name: str = name
        self.table, self.region = table, region
        self.session, self.config = session, config
        self.state: SimpleNamespace = SimpleNamespace()
        """Values for all handlers of the process, which ``lifespan`` may set."""
        self._streams = None if streams is None else as_streams(streams)
        self._lifespan = lifespan
        self._options: dict[str, Any] = {**options, "decode": decode}
        self._handlers: dict[Stream, Handler] = {}

    def handler(
        self,
        *streams: StreamLike,
        decode: Any = None,
        **options: Unpack[HandlerKeywords],
    ) -> Callable[[F], F]:
        """Return a decorator by which a function handles these streams of the app.

        Without ``streams``, it handles all streams of the app. ``options`` are those of
        ``Handler``, and take precedence over the app's. The function gets a record or a
        batch, as its first annotation says, and its dependencies. It stays callable as
        it is.

        Raises ConfigurationError for a stream that the app doesn't have, or that has a
        handler.
        """
        if len(streams) == 1 and callable(streams[0]):
            raise ConfigurationError(
                "handler() is called without a function: write @app.handler(…)"
            )
        chosen = self._chosen(streams)
        for stream in chosen:
            if stream in self._handlers:
                raise ConfigurationError(
                    f"stream {stream.name} has a handler: give each stream one"
                )

        def register(function: F) -> F:
            require_function("handler", function)
            declared = Handler(function, decode=decode, **options)
            self._handlers.update(dict.fromkeys(chosen, declared))
            return function

        return register

    def client(
        self,
        *,
        app: str | None = None,
        table: str | None = None,
        region: str | None = None,
        client_id: str | None = None,
        stop_signals: bool = False,
    ) -> Kinesumer:
        """Return a client with the app's arguments, of which some may be replaced."""
        return Kinesumer(
            app or self.name,
            table=table or self.table,
            region=region or self.region,
            client_id=client_id,
            session=self.session,
            config=self.config,
            stop_signals=stop_signals,
        )

    async def run(self, client: Kinesumer | None = None) -> None:
        """Consume by ``client.run()``, within the lifespan, until the client leaves.

        Without a client, make one that SIGTERM and SIGINT let leave. Raises what
        ``Kinesumer.run()``, the lifespan and the dependencies raise.
        """
        if client is None:
            async with self.client(stop_signals=True) as own:
                await self.run(own)
            return
        async with self._opened() as handlers:
            await client.run(handlers, **self._options)

    @asynccontextmanager
    async def _opened(
        self, overrides: Overrides = NO_OVERRIDES
    ) -> AsyncIterator[dict[Stream, Handler]]:
        """Open the lifespan and the process's dependencies for the length of a block.

        Yield the handlers, which take only a record or a batch. ``overrides`` replace
        functions of dependencies. Raises ConfigurationError.
        """
        self._require_handlers()
        async with AsyncExitStack() as stack:
            if self._lifespan is not None:
                values = await stack.enter_async_context(self._lifespan(self))
                vars(self.state).update(values or {})
            scope = ProcessScope(stack, overrides)
            yield {
                stream: replace(handler, function=await scope.bind(handler.function))
                for stream, handler in self._handlers.items()
            }

    def test(self, overrides: Overrides = NO_OVERRIDES) -> AppTest:
        """Return a context manager that feeds records to the handlers, without AWS.

        ``async with app.test() as test: await test.feed("orders", b"{}")``. The
        functions that are values of ``overrides`` replace those that are its keys.
        """
        from kinesumer.testing.app import AppTest

        return AppTest(self.name, self._opened(overrides), self._options, self._stream)

    def _stream(self, wanted: StreamLike) -> Stream:
        """Return the app's stream with this name or ARN. Raises ConfigurationError."""
        [asked] = as_streams([wanted])
        known = self._handlers if self._streams is None else self._streams
        found = [
            each
            for each in known
            if asked == each or wanted in (each.name, stream_name(each.name))
        ]
        if len(found) == 1:
            return found[0]
        names = ", ".join(each.name for each in known) or "none"
        raise ConfigurationError(
            f"app {self.name} has several streams {asked.name}: pass the Stream object"
            if found
            else f"app {self.name} has no stream {asked.name} (it has: {names}): "
            "correct the name, or add the stream to the streams= of the app"
        )

    def _chosen(self, streams: Sequence[StreamLike]) -> list[Stream]:
        if streams and self._streams is None:
            return as_streams(list(streams))
        if streams:
            return [self._stream(each) for each in streams]
        if self._streams is None:
            raise ConfigurationError(
                "handler() names no stream, and the app has none: name a stream in "
                "@app.handler(…), or in the streams= of the app"
            )
        return self._streams

    def _require_handlers(self) -> None:
        if not self._handlers:
            raise ConfigurationError(
                f"app {self.name} has no handler: write @app.handler(…) above a "
                "function, and import its module"
            )
        without = [s.name for s in self._streams or () if s not in self._handlers]
        if without:
            raise ConfigurationError(
                f"streams of app {self.name} have no handler: {', '.join(without)}; "
                "write @app.handler(…) for them, or take them out of streams="
            )
