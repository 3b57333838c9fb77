"""What others get to see of a process, searched for what they must not."""

from __future__ import annotations

import base64
import json
import logging
import traceback
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kinesumer.telemetry.otel import Instruments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_OBJECTS = 50_000


class Evidence(logging.Handler):
    """Log lines, errors, spans, metrics, reprs, and whatever else a test adds."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter())
        self._texts: dict[str, list[bytes]] = {}
        self._reader, self._spans = InMemoryMetricReader(), InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.instruments = Instruments(
            MeterProvider([self._reader]).get_meter("test"), tracers.get_tracer("test")
        )

    def add(self, where: str, *texts: str | bytes) -> None:
        """Take in what can be read somewhere."""
        self._texts.setdefault(where, []).extend(
            text.encode() if isinstance(text, str) else text for text in texts
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Take in a log line, with its traceback and all its fields."""
        self.add("logs", self.format(record), repr(vars(record)))

    def add_error(self, error: BaseException) -> None:
        """Take in an error with all that led to it, as it is shown and as it is."""
        self.add("errors", *traceback.format_exception(error), repr(error))
        shown: BaseException | None = error
        while shown is not None:
            self.add("errors", str(shown), repr(vars(shown)))
            shown = shown.__cause__ or (
                None if shown.__suppress_context__ else shown.__context__
            )

    def add_objects(self, *roots: object) -> None:
        """Take in how objects of this project show themselves, and all they hold."""
        for shown in _reachable(roots):
            self.add("reprs", repr(shown))

    def add_telemetry(self) -> None:
        """Take in what an SDK has got."""
        self.add("spans", *(str(s.to_json()) for s in self._spans.get_finished_spans()))
        data = self._reader.get_metrics_data()
        self.add("metrics", "" if data is None else data.to_json())

    def texts(self, where: str) -> list[bytes]:
        """Return what was read somewhere so far."""
        return self._texts.get(where, [])

    @property
    def places(self) -> set[str]:
        """Where there was anything to read."""
        return {where for where, texts in self._texts.items() if any(texts)}

    def leaks(self, secrets: dict[str, str]) -> set[str]:
        """Return which secrets can be read where, in any usual spelling."""
        return {
            f"{name} in {where}"
            for name, secret in secrets.items()
            for spelling in _spellings(secret)
            for where, texts in self._texts.items()
            if any(spelling in text for text in texts)
        }


def _spellings(secret: str) -> Iterable[bytes]:
    return {
        spelling.encode()
        for spelling in (
            secret,
            quote(secret, safe=""),
            quote(secret),
            json.dumps(secret)[1:-1],
            base64.b64encode(secret.encode()).decode(),
        )
    }


def _reachable(roots: Iterable[object]) -> Iterator[object]:
    """Yield the project's objects and tuples, lists, dictionaries that hold any."""
    todo, seen = list(roots), dict[int, object]()
    while todo and len(seen) < MOST_OBJECTS:
        found = todo.pop()
        if id(found) in seen:
            continue
        seen[id(found)] = found
        if type(found).__module__.startswith("kinesumer"):
            yield found
        todo += _held_by(found)


def _held_by(found: Any) -> Iterable[object]:
    if isinstance(found, dict):
        return [*found.keys(), *found.values()]
    if isinstance(found, list | tuple | set | frozenset):
        return list(found)
    if not type(found).__module__.startswith("kinesumer"):
        return []
    slots = {
        name
        for kind in type(found).__mro__
        for name in getattr(kind, "__slots__", ())
        if isinstance(name, str)
    }
    held = dict(getattr(found, "__dict__", {}))
    return [*held.values(), *(getattr(found, name, None) for name in slots)]
