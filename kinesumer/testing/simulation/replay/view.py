"""Keep a client's knowledge at a time, to answer reads that come at other times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kinesumer.telemetry.history import Line
from kinesumer.telemetry.recording_state import RowKey, ToldState, answer_key


class ClientView:
    """The rows and other answers that the client got until a time.

    What the replayed client wrote since then is part of it.
    """

    def __init__(self, told: ToldState, lines: Iterable[Line]) -> None:
        self._told = told
        self._lines: Iterator[Line] = iter(lines)
        self._next_line: Line | None = next(self._lines, None)
        self._until = 0.0
        # The rows after the client's own writes, and when it was told of them.
        self._written: dict[RowKey, tuple[float, Any]] = {}

    def advance(self, until: float) -> None:
        """Add what the client was told until a time."""
        self._until = max(self._until, until)
        while self._next_line is not None and self._next_line["at"] <= until:
            self._told.learn(self._next_line)
            self._next_line = next(self._lines, None)

    def wrote(self, key: list[str], row: Any, at: float) -> None:
        """Add the row, or None, after a write that was answered at a time."""
        self._written[key[0], key[1]] = at, row

    def rows(self) -> dict[RowKey, Any]:
        """Return the known rows by key."""
        known = self._told.rows
        later = {k: row for k, (at, row) in self._written.items() if at > self._until}
        if not later:
            return known
        merged = known | later
        return {key: row for key, row in merged.items() if row is not None}

    def answer(self, name: str, arguments: Line) -> Any:
        """Return the answer to a read, or None if it is not known."""
        match name:
            case "get":
                pk, sk = arguments["key"]
                return self.rows().get((pk, sk))
            case "query":
                return self._query(arguments)
            case "query_not_updated_since":
                return []
        told = self._told.answers.get(answer_key(arguments))
        return None if told is None else told["result"]

    def _query(self, arguments: Line) -> list[Any]:
        pk, first, last = (arguments[name] for name in ("pk", "first", "last"))
        return [
            row
            for key, row in sorted(self.rows().items())
            if key[0] == pk and first <= key[1] and (not last or key[1] <= last)
        ]
