"""Keep the last answers that a client got, from the lines of its history."""

from __future__ import annotations

from typing import Any

from kinesumer.telemetry.history import Line

# A row's key, as lists and tuples of lines have it.
RowKey = tuple[str, str]
# Calls of which the last answer matters, and whose answers have no rows.
REMEMBERED = frozenset(("verify", "describe", "list_shards", "open_source"))


class ToldState:
    """The rows and other answers that the client got last, and its open calls."""

    def __init__(self) -> None:
        self.rows: dict[RowKey, dict[str, Any]] = {}
        self.answers: dict[tuple[str, str], Line] = {}  # by call and stream
        self.open_calls: dict[int, Line] = {}
        self.consume: Line | None = None

    def learn(self, line: Line) -> None:
        """Take the next line."""
        match line["kind"]:
            case "call":
                self.open_calls[line["call"]] = line
            case "answer":
                call = self.open_calls.pop(line["call"], None)
                if call is not None and "result" in line:
                    self._told(call, line["result"])
            case "consume":
                self.consume = line
            case "known":
                self._begin(line)

    def line(self, at: float) -> Line:
        """Return a line of kind ``known`` from which another state can begin."""
        return {
            "kind": "known",
            "at": at,
            "rows": [*self.rows.values()],
            "answers": [*self.answers.values()],
            "open_calls": [*self.open_calls.values()],
            "consume": self.consume,
        }

    def _begin(self, line: Line) -> None:
        self.rows = {row_key(row): row for row in line["rows"]}
        self.answers = {answer_key(each): each for each in line["answers"]}
        self.open_calls = {call["call"]: call for call in line["open_calls"]}
        self.consume = line["consume"]

    def _told(self, call: Line, result: Any) -> None:
        match call["name"]:
            case "get":
                self._set_row(call["key"], result)
            case "write":
                self._set_row(call["key"], result["row"])
            case "query":
                self._set_rows(call, result)
            case name if name in REMEMBERED:
                told = {"name": name, "stream": call.get("stream", "")}
                self.answers[answer_key(told)] = {**told, "result": result}

    def _set_row(self, key: Any, row: dict[str, Any] | None) -> None:
        pk, sk = key
        if row is None:
            self.rows.pop((pk, sk), None)
        else:
            self.rows[pk, sk] = row

    def _set_rows(self, call: Line, rows: list[dict[str, Any]]) -> None:
        first, last = call["first"], call["last"]
        for pk, sk in [*self.rows]:
            if pk == call["pk"] and first <= sk and (not last or sk <= last):
                del self.rows[pk, sk]
        self.rows |= {row_key(row): row for row in rows}


def row_key(row: dict[str, Any]) -> RowKey:
    """Return the key of a row."""
    return row["pk"], row["sk"]


def answer_key(told: Line) -> tuple[str, str]:
    """Return what identifies a remembered answer."""
    return told["name"], told.get("stream", "")
