"""Find the application that ``kinesumer run`` names, and run it with a client."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from kinesumer import blocking
from kinesumer.app.app import App
from kinesumer.client import Kinesumer
from kinesumer.errors import ConfigurationError
from kinesumer.model.validation import is_async

HINT = "pass MODULE:ATTRIBUTE, such as app:app"


class ClientOptions(NamedTuple):
    """The arguments of a client that the command's options give; None if they don't."""

    app: str | None = None
    table: str | None = None
    region: str | None = None
    client_id: str | None = None


class Target(NamedTuple):
    """An application: an ``App``, or a function of a client."""

    name: str
    found: App | Callable[[Any], Any]

    @property
    def is_blocking(self) -> bool:
        """Return whether it is a plain function, which gets a blocking client."""
        return not isinstance(self.found, App) and not is_async(self.found)

    def client(self, options: ClientOptions) -> Kinesumer | blocking.Kinesumer:
        """Return a client for it, which SIGTERM and SIGINT let leave.

        Raises ConfigurationError.
        """
        if isinstance(self.found, App):
            return self.found.client(**options._asdict(), stop_signals=True)
        if options.app is None:
            raise ConfigurationError(
                f"{self.name} is a function, so the group has no name: pass --app, or "
                "set KINESUMER_APP"
            )
        kind = blocking.Kinesumer if self.is_blocking else Kinesumer
        given = {name: value for name, value in options._asdict().items() if value}
        return kind(**given, stop_signals=True)

    async def run(self, client: Kinesumer) -> None:
        """Run it until the client leaves, or until it returns."""
        async with client:
            if isinstance(self.found, App):
                await self.found.run(client)
            else:
                await self.found(client)

    def run_blocking(self, client: blocking.Kinesumer) -> None:
        """Run a plain function until it returns."""
        assert not isinstance(self.found, App)
        with client:
            self.found(client)


def load_target(text: str) -> Target:
    """Import ``module:attribute`` from the working directory or an installed package.

    Raises ConfigurationError if it can't be found, or isn't an application, and the
    errors of the module's code.
    """
    module_name, colon, path = text.partition(":")
    if not (module_name and colon and path):
        raise ConfigurationError(f"{text!r} doesn't name an application: {HINT}")
    module = _imported(module_name)
    try:
        found: Any = reduce(getattr, path.split("."), module)
    except AttributeError:
        raise ConfigurationError(
            f"module {module_name} has no attribute {path}{_apps_of(module)}: {HINT}"
        ) from None
    if not isinstance(found, App):
        _check_function(text, found)
    return Target(text, found)


def _imported(name: str) -> ModuleType:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise ConfigurationError(
                f"module {missing} isn't in this directory or among the installed "
                f"packages: start the command where it is, or {HINT}"
            ) from error
        raise ConfigurationError(
            f"module {name} can't be imported: {error}; install what it needs"
        ) from error
    except (ImportError, SyntaxError) as error:
        raise ConfigurationError(
            f"module {name} can't be imported: {error}; correct it"
        ) from error


def _apps_of(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, App)]
    return f" (its apps: {', '.join(names)})" if names else ""


def _check_function(text: str, found: object) -> None:
    if isinstance(found, type) or not callable(found):
        raise ConfigurationError(
            f"{text} has the type {type(found).__name__}: it must be a kinesumer.App, "
            "or a function that takes a client"
        )
    try:
        inspect.signature(found).bind(None)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{text} can't be called with a client ({error}): let it take one argument"
        ) from None
