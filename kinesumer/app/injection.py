"""Make the values of dependencies, pass them to handlers, and clean up.

Values of the process are bound to the handler once. So a handler costs something only
if it has dependencies for each call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import (
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from functools import partial, wraps
from typing import Any

from kinesumer.app.dependencies import (
    Dependency,
    Function,
    Overrides,
    Scope,
    first_parameter,
    read_dependencies,
)
from kinesumer.model.validation import code_of, is_async

# The values that were made, by the functions that made them and their scopes.
Values = dict[tuple[Function, Scope], Any]


class ProcessScope:
    """Binds to handlers the values that live as long as the process.

    ``stack`` cleans them up, in the reverse order.
    """

    def __init__(self, stack: AsyncExitStack, overrides: Overrides) -> None:
        self._stack, self._overrides = stack, overrides
        self._values: Values = {}

    async def bind(self, function: Function) -> Function:
        """Return a handler that takes only the record or the batch.

        Raises ConfigurationError, and the errors of functions that make values.
        """
        trees = read_dependencies(function, self._overrides)
        bound: dict[str, Any] = {}
        each_call: dict[str, Dependency] = {}
        for name, tree in trees.items():
            for dependency in tree.walk():
                if dependency.scope == "process":
                    await _make(dependency, self._values, None, self._stack)
            if tree.scope == "process":
                bound[name] = self._values[tree.key]
            else:
                each_call[name] = tree
        if bound:
            function = partial(function, **bound)
        if not each_call:
            return function
        called = _call_async if is_async(function) else _call_in_thread
        return _with_one_parameter(function, called(function, each_call, self._values))


def _call_async(
    function: Function, trees: Mapping[str, Dependency], shared: Values
) -> Function:
    async def call(item: Any) -> None:
        failure: BaseException | None = None
        values = dict(shared)
        async with AsyncExitStack() as stack:
            arguments = {
                name: await _make(tree, values, item, stack)
                for name, tree in trees.items()
            }
            try:
                await function(item, **arguments)
            except BaseException as error:
                failure = error
                raise
        # A generator that catches the error must not make a failed call a success:
        # nobody would handle the record.
        if failure is not None:
            raise failure

    return call


def _call_in_thread(
    function: Function, trees: Mapping[str, Dependency], shared: Values
) -> Function:
    def call(item: Any) -> Any:
        failure: BaseException | None = None
        values = dict(shared)
        result = None
        with ExitStack() as stack:
            arguments = {
                name: _make_in_thread(tree, values, item, stack)
                for name, tree in trees.items()
            }
            try:
                result = function(item, **arguments)
            except BaseException as error:
                failure = error
                raise
        if failure is not None:
            raise failure
        return result

    return call


def _with_one_parameter(function: Function, call: Function) -> Function:
    """Give a wrapper the name of a handler and the annotation of its first parameter.

    They tell the client whether it takes a record or a batch.
    """
    wrapped: Any = wraps(code_of(function))(call)
    first = first_parameter(function)
    wrapped.__signature__ = inspect.Signature([first] if first is not None else [])
    made: Function = wrapped
    return made


async def _make(
    dependency: Dependency, values: Values, item: Any, stack: AsyncExitStack
) -> Any:
    """Return the value of a dependency, which is made unless ``values`` has it."""
    function = dependency.function
    if dependency.key in values:
        return values[dependency.key]
    arguments = {
        name: await _make(inner, values, item, stack)
        for name, inner in dependency.arguments.items()
    }
    arguments |= dict.fromkeys(dependency.items, item)
    if (enter := _as_async_context(function)) is not None:
        made = await stack.enter_async_context(enter(**arguments))
    elif (enter := _as_context(function)) is not None:
        made = stack.enter_context(enter(**arguments))
    else:
        made = function(**arguments)
        if inspect.isawaitable(made):
            made = await made
    values[dependency.key] = made
    return made


def _make_in_thread(
    dependency: Dependency, values: Values, item: Any, stack: ExitStack
) -> Any:
    """Do the same as ``_make()`` without an event loop."""
    function = dependency.function
    if dependency.key in values:
        return values[dependency.key]
    arguments = {
        name: _make_in_thread(inner, values, item, stack)
        for name, inner in dependency.arguments.items()
    }
    arguments |= dict.fromkeys(dependency.items, item)
    enter = _as_context(function)
    made = (
        function(**arguments)
        if enter is None
        else stack.enter_context(enter(**arguments))
    )
    values[dependency.key] = made
    return made


def _as_async_context(function: Function) -> Callable[..., Any] | None:
    """Return an async generator as a context manager; None for other functions.

    It may have the decorator ``@asynccontextmanager`` already.
    """
    if inspect.isasyncgenfunction(code_of(function)):
        return asynccontextmanager(function)
    is_decorated = inspect.isasyncgenfunction(inspect.unwrap(code_of(function)))
    return function if is_decorated else None


def _as_context(function: Function) -> Callable[..., Any] | None:
    """Return a generator as a context manager; None for other functions."""
    if inspect.isgeneratorfunction(code_of(function)):
        return contextmanager(function)
    is_decorated = inspect.isgeneratorfunction(inspect.unwrap(code_of(function)))
    return function if is_decorated else None
