"""Find the handler of each stream that ``run()`` consumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kinesumer.consuming.streams import OpenStream, StreamLike, as_streams
from kinesumer.errors import ConfigurationError
from kinesumer.handlers.handler import (
    Handler,
    HandlerDefaults,
    RunOptions,
    read_run_options,
)
from kinesumer.model.streams import Stream


class StreamHandlers(NamedTuple):
    """The checked handlers of ``run()``: one for all streams, or one for each."""

    streams: StreamLike | Sequence[StreamLike]
    defaults: HandlerDefaults
    # The handler of all streams; None if each stream has its own.
    common: RunOptions | None
    by_stream: Mapping[Stream, RunOptions]

    def replaced(self, handlers: Mapping[Any, object]) -> StreamHandlers:
        """Return the handlers that ``refresh()`` gets, with the same defaults.

        Raises ConfigurationError if one handler is called for all streams.
        """
        if self.common is not None:
            raise ConfigurationError(
                "run() has one handler for all streams: give refresh() streams only, "
                "or call run({stream: handler})"
            )
        return self._replace(by_stream=_read_each(handlers, self.defaults))

    def of(self, stream: OpenStream, present: RunOptions | None) -> RunOptions:
        """Return a stream's handler. ``present`` is the one that the stream has.

        Raises ConfigurationError if the stream has no handler, or if another handler
        is given for it.
        """
        given = self.common or self.by_stream.get(stream.stream)
        found = present or given
        if found is None:
            raise ConfigurationError(
                f"{stream.label} has no handler: name it in run({{stream: handler}}) "
                "or refresh({stream: handler})"
            )
        if given is not None and given.declared != found.declared:
            raise ConfigurationError(
                f"{stream.label} has a handler, which refresh() can't replace: give "
                "it the same handler, or only the stream"
            )
        return found


def read_handlers(
    streams: Any, handler: object, defaults: HandlerDefaults
) -> StreamHandlers:
    """Check the handler or the handlers of ``run()``. Raises ConfigurationError."""
    decode = defaults.get("decode")
    if not isinstance(streams, Mapping):
        if isinstance(decode, Mapping):
            raise ConfigurationError(
                "decode={stream: type} needs a handler for each stream: call "
                "run({stream: handler}), or give decode= one type or function"
            )
        return StreamHandlers(
            streams, defaults, read_run_options(handler, **defaults), {}
        )
    if handler is not None:
        raise ConfigurationError(
            f"run() was given {{stream: handler}} and handler={handler!r}: leave one "
            "of them out"
        )
    by_stream = _read_each(streams, defaults)
    if isinstance(decode, Mapping):
        _check_keys(decode, list(by_stream))
    return StreamHandlers([*by_stream], defaults, None, by_stream)


def _read_each(
    handlers: Mapping[Any, object], defaults: HandlerDefaults
) -> dict[Stream, RunOptions]:
    found: dict[Stream, RunOptions] = {}
    for stream, handler in zip(as_streams([*handlers]), handlers.values(), strict=True):
        if stream in found:
            raise ConfigurationError(
                f"stream {stream.name} is named twice: name it once"
            )
        try:
            options = _with_decode_of(stream, handler, defaults)
            found[stream] = read_run_options(handler, **options)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"correct the handler of stream {stream.name}: {error}"
            ) from error
    return found


def _with_decode_of(
    stream: Stream, handler: object, defaults: HandlerDefaults
) -> HandlerDefaults:
    """Return the defaults with ``decode`` for one stream, if ``decode`` is a mapping.

    A stream that the mapping does not name is not decoded by default.
    """
    decode = defaults.get("decode")
    if not isinstance(decode, Mapping):
        return defaults
    named = [own for key, own in decode.items() if key in (stream, stream.name)]
    is_decoded = isinstance(handler, Handler) and handler.decode is not None
    if len(named) + is_decoded > 1:
        raise ConfigurationError("decode= is given for it twice: give it once")
    return {**defaults, "decode": named[0] if named else None}


def _check_keys(decode: Mapping[Any, object], streams: list[Stream]) -> None:
    """Raise ConfigurationError if a key does not name exactly one stream."""
    for key in decode:
        named = [stream for stream in streams if key in (stream, stream.name)]
        if not named:
            raise ConfigurationError(
                f"decode= names {key!r}, which has no handler: give decode= only "
                "streams of {stream: handler}"
            )
        if len(named) > 1:
            raise ConfigurationError(
                f"decode= names {key!r}, but several streams have this name: give "
                "decode= the Stream objects"
            )
