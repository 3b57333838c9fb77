"""Formats of the lines that ``kinesumer run`` logs: for people, or as JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

TEXT = "%(asctime)s %(levelname)s %(message)s"
# What a log record has besides the fields that its caller adds.
STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON.

    The fields are ``time``, ``level``, ``logger`` and ``message``, those in ``about``,
    those that the caller added by ``extra``, and ``traceback`` if there is an error.
    """

    def __init__(self, **about: object) -> None:
        super().__init__()
        self._about = about

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **self._about,
        }
        added = {k: v for k, v in vars(record).items() if k not in STANDARD}
        fields |= {name: value for name, value in added.items() if name not in fields}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def set_format(kind: str, process: int | None) -> None:
    """Format the lines that the command logs as ``text`` or ``json``.

    Each line tells the index of its process, if there are several.
    """
    number = "" if process is None else f" [{process}]"
    formatter: logging.Formatter = logging.Formatter(
        TEXT.replace(" %(message)s", f"{number} %(message)s")
    )
    if kind == "json":
        formatter = JsonFormatter(**({} if process is None else {"process": process}))
    for handler in _handlers():
        handler.setFormatter(formatter)


def logs_json() -> bool:
    """Return whether lines are logged as JSON."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in _handlers())


def _handlers() -> list[logging.Handler]:
    """Return the handler that the command has made, and leave those of others out."""
    found = logging.getLogger().handlers
    return [handler for handler in found if type(handler) is logging.StreamHandler]
