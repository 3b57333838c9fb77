"""Clients of another version of the library, in a group with those of this one.

Both versions run in one process, on one virtual clock. Each has its own code for all
that a client does: coordination, reading, delivery, handlers, rows and wire formats.
They share the simulated services, which speak this version's ports (``ports.py``). A
value or an error that crosses becomes that of the same name in the other version.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from types import ModuleType
from typing import Any, Self, cast

from kinesumer.coordination.heartbeat import HeartbeatTask
from kinesumer.model.records import PackedRecords
from kinesumer.model.streams import Stream
from kinesumer.testing.simulation.client import Process, on_thread
from kinesumer.testing.simulation.package_copy import PRESENT, add_copy
from kinesumer.testing.simulation.user_code import SimulatedClient

# The modules whose values and errors cross between versions.
VOCABULARY = ("config", "errors", "handlers", "model", "ports")


class Translator:
    """Turns values and errors into those of one version.

    Fields that the version doesn't have are left out. Those that only it has get their
    defaults.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        # This version's classes, by those of another version; None for other objects.
        self._kinds: dict[type, Any] = {}

    def __call__(self, value: Any) -> Any:
        """Return a value of this version. All other objects stay the same."""
        kind = type(value)
        if kind is dict:
            return {key: self(each) for key, each in value.items()}
        if kind in (list, tuple, frozenset, set):
            return kind(map(self, value))
        if isinstance(value, PackedRecords):  # each version packs them in its own way
            return [self(record) for record in value]
        if kind not in self._kinds:
            self._kinds[kind] = self._find_kind(kind)
        if (target := self._kinds[kind]) is None:
            return value
        if isinstance(value, BaseException):
            error = target.__new__(target, *value.args)
            vars(error).update(vars(value))
            return error
        if hasattr(value, "parts"):  # of a condition
            return target(*map(self, value.parts))
        names = [name for name in _field_names(target) if hasattr(value, name)]
        return target(**{name: self(getattr(value, name)) for name in names})

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise this version's error in place of the same error of another version."""
        try:
            yield
        except Exception as error:
            translated = self(error)
            if translated is error:
                raise
            raise translated from error

    def _find_kind(self, kind: type) -> Any:
        """Return this version's class for one of another version, or None.

        An error that this version doesn't know is one of its nearest base class.
        Raises LookupError for a value that this version doesn't know.
        """
        package, _, module = kind.__module__.partition(".")
        if package == self._package or not package.startswith(PRESENT):
            return None
        if issubclass(kind, BaseException):
            return next(filter(None, map(self._find, kind.__mro__)), None)
        if module.partition(".")[0] not in VOCABULARY:
            return None
        if (found := self._find(kind)) is None:
            raise LookupError(f"{self._package} has no class like {kind!r}")
        return found

    def _find(self, kind: type) -> Any:
        """Return this version's class with the name of a class, or None."""
        for module in _vocabulary(self._package):
            found = vars(module).get(kind.__name__)
            if isinstance(found, type) and found.__module__ == module.__name__:
                return found
        return None


def _vocabulary(package: str) -> Sequence[ModuleType]:
    """Return a version's modules of the vocabulary. Classes may move between them."""
    tops = {f"{package}.{name}" for name in VOCABULARY}
    return [
        module
        for name, module in list(sys.modules.items())
        if ".".join(name.split(".")[:2]) in tops
    ]


def _field_names(kind: Any) -> Sequence[str]:
    """Return the names of the fields of a named tuple, a struct or a dataclass."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if field.init]
    names: Sequence[str] = getattr(kind, "_fields", ()) or kind.__struct_fields__
    return names


class OtherVersion:
    """The library's code in a folder, the root of a checkout.

    Raises ValueError if its clients can't be given other ports than AWS.
    """

    def __init__(self, source: Path) -> None:
        package = add_copy(source)
        self.client: Any = import_module(f"{package}.client")
        try:
            # This module defines what a client gets from outside.
            self.seam: Any = import_module(f"{package}.coordination.connections")
        except ModuleNotFoundError as error:
            raise ValueError(
                f"{source} is too old for the simulator: its clients have no ports; "
                "choose a later version"
            ) from error
        self.there: Translator = Translator(package)
        self.here: Translator = Translator(PRESENT)

    def port(self, port: object) -> Any:
        """Return a port of the simulator, for clients of this version."""
        return _TranslatedPort(port, self)


@cache
def load_version(source: str) -> OtherVersion:
    """Load the version in a folder, once in each process. Raises ValueError."""
    return OtherVersion(Path(source))


class _TranslatedPort:
    """A state store or a source of records whose methods another version calls."""

    def __init__(self, port: object, version: OtherVersion) -> None:
        self._port, self._version = port, version

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._port, name)
        here, there = self._version.here, self._version.there

        def call(*arguments: Any, **options: Any) -> Any:
            with there.errors():
                return there(method(*here(arguments), **here(options)))

        async def call_and_wait(*arguments: Any, **options: Any) -> Any:
            with there.errors():
                return there(await method(*here(arguments), **here(options)))

        return call_and_wait if iscoroutinefunction(method) else call


class OtherClient:
    """A client of another version, called like a SimulatedClient of this one.

    User code gets the other version's own records, batches and letters. Loops and
    ``run()`` raise its own errors.
    """

    def __init__(self, client: Any, version: OtherVersion) -> None:
        self._client, self._version = client, version

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.__aexit__(*error)

    @property
    def group(self) -> Any:
        """The client's group, or None before its start."""
        return self._client._lifecycle.group

    def owned_shards(self) -> Iterable[Any]:
        """Return the shards that the client owns now."""
        return () if self.group is None else self.group.owned_shards()

    def consume(self, streams: Sequence[Stream], **options: Any) -> Any:
        """Return the records of streams."""
        there = self._version.there
        return self._client.consume(there(streams), **there(options))

    async def run(
        self,
        streams: Sequence[Stream],
        handler: Callable[..., Awaitable[None]],
        *,
        dead_letters: Callable[[Any], Awaitable[None]],
        **options: Any,
    ) -> None:
        """Call a handler with the records of streams."""
        there = self._version.there

        async def set_aside(letter: object) -> None:
            with there.errors():
                await dead_letters(letter)

        options = there(options)
        await self._client.run(
            there(streams), handler, dead_letters=set_aside, **options
        )

    def ack(self, record: object) -> None:
        """Mark a record as done."""
        self._client.ack(record)

    async def commit(self) -> None:
        """Store the positions. Raises this version's ShardsLostError."""
        with self._version.here.errors():
            await self._client.commit()

    async def refresh(self, streams: Sequence[Stream]) -> None:
        """Consume these streams from now on."""
        await self._client.refresh(self._version.there(streams))

    async def leave(self) -> None:
        """Hand the shards over, and end."""
        await self._client.leave()


class OtherProcess(Process):
    """A client process that runs another version. It writes no history."""

    def __init__(self, version: OtherVersion, *arguments: Any) -> None:
        self._version = version
        super().__init__(*arguments)

    async def _consume(self) -> None:
        with self._version.here.errors():
            await super()._consume()

    def _new_client(self) -> SimulatedClient:
        version, world, seam = self._version, self.world, self._version.seam
        connections = seam.Connections(
            store=version.port(self.store),
            open_source=self._open_source_there,
            heartbeat=self._new_heartbeat_there,
        )

        @asynccontextmanager
        async def connect(*_: object) -> AsyncIterator[object]:
            yield connections

        client = version.client.Kinesumer(
            world.scenario.app,
            client_id=self.client_id,
            config=version.there(world.config_of(self.client_id)),
            _ports=seam.Ports(
                clock=self.machine,
                random=self.random,
                new_id=world.new_id,
                connect=connect,
            ),
        )
        return cast("SimulatedClient", OtherClient(client, version))

    async def _open_source_there(self, stream: object) -> object:
        version = self._version
        with version.there.errors():
            return version.port(await self._open_source(version.here(stream)))

    def _new_heartbeat_there(self, context: Any) -> HeartbeatTask:
        context = dataclasses.replace(context, store=self._version.port(self.store))
        task = self._version.seam.HeartbeatTask(context)
        return on_thread(self.heartbeat_thread, task)
