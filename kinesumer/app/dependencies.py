"""Read what the parameters of a handler depend on (dependency injection).

The annotation ``Annotated[Pool, Depends(open_pool)]`` names the function that makes the
argument. The parameters of that function may depend on others in the same way. The
functions and their dependencies form a tree for each parameter of a handler.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from kinesumer.errors import ConfigurationError
from kinesumer.model.batches import Batch, ColumnBatch
from kinesumer.model.records import Record
from kinesumer.model.validation import code_of, is_async

Scope = Literal["process", "call"]
Function = Callable[..., Any]
# The functions that tests use in place of others.
Overrides = Mapping[Function, Function]

ITEMS = (Record, Batch, ColumnBatch)


@dataclass(frozen=True, slots=True)
class Depends:
    """Names the function that makes a handler's argument, in ``Annotated[T, …]``.

    ``function`` may be plain or async. If it is a generator, the value that it yields
    is the argument, and the code after the ``yield`` cleans up. With
    ``scope="process"``, each process calls it once, before the first record, and cleans
    up after the last one. All calls share the value. With ``scope="call"``, it is
    called for each call of the handler, and the clean-up precedes the next call. It
    sees the handler's error at its ``yield``. It may take the record or batch, by the
    annotation of a parameter.

    The function's own parameters may have dependencies, too. Dependencies with the same
    function share one value within their scope.

    Raises ConfigurationError if an argument can't be used.
    """

    function: Callable[..., Any]
    """The function that makes the argument."""
    scope: Scope = "process"
    """The length of its value's life: the process, or one call of the handler."""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigurationError(
                f"function={self.function!r} must be a function: pass the function "
                "itself, without calling it"
            )
        if self.scope not in get_args(Scope):
            raise ConfigurationError(
                f"scope={self.scope!r} must be 'process' or 'call'"
            )


class Dependency(NamedTuple):
    """A function to call, with the dependencies that are its arguments."""

    function: Function
    scope: Scope
    arguments: Mapping[str, Dependency]
    # The parameters that take the record or the batch.
    items: tuple[str, ...]

    @property
    def key(self) -> tuple[Function, Scope]:
        """Return what tells its value from other values."""
        return self.function, self.scope

    @property
    def is_async(self) -> bool:
        """Return whether making the value, or cleaning it up, needs an event loop."""
        code = inspect.unwrap(code_of(self.function))
        return is_async(self.function) or inspect.isasyncgenfunction(code)

    def walk(self) -> Iterator[Dependency]:
        """Yield all dependencies of the tree, this one last."""
        for argument in self.arguments.values():
            yield from argument.walk()
        yield self


def read_dependencies(
    function: Function, overrides: Overrides
) -> dict[str, Dependency]:
    """Return the dependencies of a handler's parameters, except the first one.

    ``overrides`` replace functions. Raises ConfigurationError for a parameter that has
    neither a dependency nor a default, and for trees that can't be made.
    """
    found: dict[str, Dependency] = {}
    reader = _Reader(overrides)
    for index, parameter in enumerate(_parameters(function)):
        annotation = _annotation(function, parameter)
        depends = _depends(function, parameter, annotation)
        if index == 0:
            if depends is not None:
                raise ConfigurationError(
                    f"the first parameter of handler {_name(function)} has a "
                    "dependency: let the record or the batch be the first one"
                )
        elif depends is not None:
            found[parameter.name] = reader.read(depends, (function,))
        elif parameter.default is parameter.empty:
            raise _without(f"handler {_name(function)}", parameter)
    needs_loop = [
        each
        for tree in found.values()
        for each in tree.walk()
        if each.scope == "call" and each.is_async
    ]
    if needs_loop and not is_async(function):
        raise ConfigurationError(
            f"handler {_name(function)} runs in a thread, but its dependency "
            f"{_name(needs_loop[0].function)} is async: write both with `async def`, "
            "or neither"
        )
    return found


class _Reader:
    """Reads trees of dependencies."""

    def __init__(self, overrides: Overrides) -> None:
        self._overrides = overrides

    def read(self, depends: Depends, path: tuple[Function, ...]) -> Dependency:
        """Return the tree of a dependency. ``path`` are the functions that need it."""
        function = self._overrides.get(depends.function, depends.function)
        scope = depends.scope
        if function in path:
            names = " → ".join(map(_name, (*path, function)))
            raise ConfigurationError(
                f"a dependency needs itself ({names}): take one of them out"
            )
        arguments: dict[str, Dependency] = {}
        items = []
        for parameter in _parameters(function):
            annotation = _annotation(function, parameter)
            inner = _depends(function, parameter, annotation)
            if inner is not None:
                arguments[parameter.name] = self._read_inner(
                    inner, scope, (*path, function)
                )
            elif (get_origin(annotation) or annotation) in ITEMS:
                if scope == "process":
                    raise ConfigurationError(
                        f"dependency {_name(function)} takes a {annotation!r}, which "
                        "only a call has: give its Depends() scope='call'"
                    )
                items.append(parameter.name)
            elif parameter.default is parameter.empty:
                raise _without(f"dependency {_name(function)}", parameter)
        return Dependency(function, scope, arguments, tuple(items))

    def _read_inner(
        self, inner: Depends, scope: Scope, path: tuple[Function, ...]
    ) -> Dependency:
        if scope == "process" and inner.scope == "call":
            raise ConfigurationError(
                f"dependency {_name(path[-1])} lasts as long as the process, but needs "
                f"{_name(inner.function)}, which is made for each call: give both the "
                "same scope"
            )
        return self.read(inner, path)


def first_parameter(function: Function) -> inspect.Parameter | None:
    """Return the parameter of a handler that takes the record or the batch."""
    return next(iter(_parameters(function)), None)


def _parameters(function: Function) -> list[inspect.Parameter]:
    """Return the parameters that take one argument each; none of a function in C."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _annotation(function: Function, parameter: inspect.Parameter) -> Any:
    """Return a parameter's annotation.

    Annotations that are text are evaluated. Those that can't be stay text.
    """
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    names = getattr(inspect.unwrap(code_of(function)), "__globals__", {})

    def holder() -> None:
        """Hold the annotation, as get_type_hints() wants it."""

    holder.__annotations__ = {"it": parameter.annotation}
    try:
        return get_type_hints(holder, names, include_extras=True)["it"]
    except Exception as error:
        if "Depends" not in parameter.annotation:
            return parameter.annotation
        raise ConfigurationError(
            f"the annotation {parameter.annotation!r} of parameter {parameter.name} of "
            f"{_name(function)} can't be evaluated ({error}): import its names at the "
            "top of the module, also outside `if TYPE_CHECKING`"
        ) from error


def _depends(
    function: Function, parameter: inspect.Parameter, annotation: Any
) -> Depends | None:
    """Return the ``Depends`` of a parameter's annotation, if it has one."""
    where = f"parameter {parameter.name} of {_name(function)}"
    if isinstance(parameter.default, Depends):
        raise ConfigurationError(
            f"{where} has Depends() as its default: write it into the annotation, as "
            f"Annotated[…, Depends({_name(parameter.default.function)})]"
        )
    extras = getattr(annotation, "__metadata__", ())
    if Depends in extras:
        raise ConfigurationError(f"{where} has Depends without a function: name one")
    found = [extra for extra in extras if isinstance(extra, Depends)]
    if len(found) > 1:
        raise ConfigurationError(f"{where} has Depends() twice: keep one of them")
    if found and parameter.kind is parameter.POSITIONAL_ONLY:
        raise ConfigurationError(
            f"{where} is positional-only, but dependencies are passed by name: put "
            "the `/` before it"
        )
    return found[0] if found else None


def _without(owner: str, parameter: inspect.Parameter) -> ConfigurationError:
    return ConfigurationError(
        f"parameter {parameter.name} of {owner} has no value: write "
        f"{parameter.name}: Annotated[…, Depends(function)], or give it a default"
    )


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
