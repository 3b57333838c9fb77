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
from kinesumer.kclpy.app import ProcessorApp
from kinesumer.kclpy.modules import PACKAGE, provide_modules
from kinesumer.model.validation import is_async

HINT = "pass MODULE:ATTRIBUTE, such as app:app"
APPS = (App, ProcessorApp)  # what knows its streams, and makes its client


class ClientOptions(NamedTuple):
    """The arguments of a client that the command's options give; None if they don't."""

    app: str | None = None
    table: str | None = None
    region: str | None = None
    client_id: str | None = None


class Target(NamedTuple):
    """An application: an ``App``, record processors, or a function of a client."""

    name: str
    found: App | ProcessorApp | Callable[[Any], Any]

    @property
    def is_blocking(self) -> bool:
        """Return whether it is a plain function, which gets a blocking client."""
        return not isinstance(self.found, APPS) and not is_async(self.found)

    def client(self, options: ClientOptions) -> Kinesumer | blocking.Kinesumer:
        """Return a client for it, which SIGTERM and SIGINT let leave.

        Raises ConfigurationError.
        """
        if isinstance(self.found, APPS):
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
        function: Any = self.found
        if isinstance(self.found, APPS):
            function = self.found.run
        async with client:
            await function(client)

    def run_blocking(self, client: blocking.Kinesumer) -> None:
        """Run a plain function until it returns."""
        assert not isinstance(self.found, APPS)
        with client:
            self.found(client)


def load_target(text: str) -> Target:
    """Import ``module:attribute`` from the working directory or an installed package.

    Raises ConfigurationError if it can't be found, or isn't an application, and the
    errors of the module's code.
    """
    found = _attribute(text)
    if not isinstance(found, App):
        _check_function(text, found)
    return Target(text, found)


def load_processor(text: str, properties: Path) -> Target:
    """Import a record processor of amazon_kclpy, as ``load_target()`` does.

    It finds kinesumer's classes in place of those of the package. Raises
    ConfigurationError also for each of the properties that can't be used.
    """
    provide_modules()
    return Target(text, ProcessorApp(_attribute(text), properties))


def _attribute(text: str) -> Any:
    module_name, colon, path = text.partition(":")
    if not (module_name and colon and path):
        raise ConfigurationError(f"{text!r} doesn't name an application: {HINT}")
    module = _imported(module_name)
    try:
        return reduce(getattr, path.split("."), module)
    except AttributeError:
        raise ConfigurationError(
            f"module {module_name} has no attribute {path}{_apps_of(module)}: {HINT}"
        ) from None


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
        advice = "install what it needs"
        if missing.partition(".")[0] == PACKAGE:
            advice = "pass --kclpy, which stands for what it needs"
        raise ConfigurationError(
            f"module {name} can't be imported: {error}; {advice}"
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
