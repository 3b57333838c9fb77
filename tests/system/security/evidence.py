"""Searches everything that a process shows to others for secrets."""

from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kinesumer.telemetry.instruments import Instruments

MOST_OBJECTS = 50_000


class Evidence(logging.Handler):
    """Collects log lines, errors, spans, metrics, reprs and other texts of a test."""

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
        """Add texts that can be read in one place."""
        self._texts.setdefault(where, []).extend(
            text.encode() if isinstance(text, str) else text for text in texts
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Add a log line with its traceback and all its fields."""
        self.add("logs", self.format(record), repr(vars(record)))

    def add_error(self, error: BaseException) -> None:
        """Add an error and its causes, with their tracebacks and attributes."""
        self.add("errors", *traceback.format_exception(error), repr(error))
        shown: BaseException | None = error
        while shown is not None:
            self.add("errors", str(shown), repr(vars(shown)))
            shown = shown.__cause__ or (
                None if shown.__suppress_context__ else shown.__context__
            )

    def add_objects(self, *roots: object) -> None:
        """Add the reprs of this project's objects and of all objects in them."""
        for shown in _reachable(roots):
            self.add("reprs", repr(shown))

    def add_telemetry(self) -> None:
        """Add the spans and metrics that the SDK has received."""
        self.add("spans", *(str(s.to_json()) for s in self._spans.get_finished_spans()))
        data = self._reader.get_metrics_data()
        self.add("metrics", "" if data is None else data.to_json())

    def texts(self, where: str) -> list[bytes]:
        """Return the texts collected from one place."""
        return self._texts.get(where, [])

    def has(self, where: str, text: str) -> bool:
        """Return whether a text was collected from one place."""
        return any(text.encode() in collected for collected in self.texts(where))

    @property
    def places(self) -> set[str]:
        """The places with any text."""
        return {where for where, texts in self._texts.items() if any(texts)}

    def leaks(self, secrets: dict[str, str]) -> set[str]:
        """Return the secrets that occur, in any usual encoding, and their places."""
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
    """Yield the project's objects, and collections that contain such objects."""
    todo, visited = list(roots), dict[int, object]()
    while todo and len(visited) < MOST_OBJECTS:
        item = todo.pop()
        if id(item) in visited:
            continue
        visited[id(item)] = item
        if type(item).__module__.startswith("kinesumer"):
            yield item
        todo += _held_by(item)


def _held_by(item: Any) -> Iterable[object]:
    if isinstance(item, dict):
        return [*item.keys(), *item.values()]
    if isinstance(item, list | tuple | set | frozenset):
        return list(item)
    if not type(item).__module__.startswith("kinesumer"):
        return []
    slots = {
        name
        for kind in type(item).__mro__
        for name in getattr(kind, "__slots__", ())
        if isinstance(name, str)
    }
    held = dict(getattr(item, "__dict__", {}))
    return [*held.values(), *(getattr(item, name, None) for name in slots)]
