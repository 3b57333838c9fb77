"""Refuse the statements of the other kind of client, with an error that names it."""

from __future__ import annotations

from typing import NoReturn

from kinesumer.errors import ConfigurationError


class ForAsyncio:
    """Refuses ``with`` and ``for``, because the object is for asyncio."""

    def __enter__(self) -> NoReturn:
        raise _for_asyncio()

    # Without it, `with` raises an error of its own before it calls __enter__().
    def __exit__(self, *_: object) -> None:
        raise _for_asyncio()

    def __iter__(self) -> NoReturn:
        raise _for_asyncio()


class ForThreads:
    """Refuses ``async with`` and ``async for``, because the object is for threads."""

    async def __aenter__(self) -> NoReturn:
        raise _for_threads()

    async def __aexit__(self, *_: object) -> None:
        raise _for_threads()

    def __aiter__(self) -> NoReturn:
        raise _for_threads()


def _for_asyncio() -> ConfigurationError:
    return ConfigurationError(
        "this object is for asyncio: use `async with` and `async for`, or, without "
        "asyncio, kinesumer.blocking.Kinesumer"
    )


def _for_threads() -> ConfigurationError:
    return ConfigurationError(
        "this object is for code without asyncio: use `with` and `for`, or, with "
        "asyncio, kinesumer.Kinesumer"
    )
