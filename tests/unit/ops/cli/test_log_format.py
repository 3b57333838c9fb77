"""Test the lines that ``kinesumer run --log-format json`` logs."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from kinesumer.ops.cli.log_format import JsonFormatter


def line(formatter: JsonFormatter, **record: Any) -> dict[str, Any]:
    made = {"name": "kinesumer", "levelname": "WARNING", "created": 1.8e9}
    text = formatter.format(logging.makeLogRecord(made | record))
    assert text.isascii()
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_line_has_the_time_the_level_the_message_and_the_fields_of_its_caller() -> (
    None
):
    found = line(
        JsonFormatter(process=1),
        msg="%s fails",
        args=("commit",),
        shard_id="shard-0",
        error=ValueError("no"),
    )
    assert found == {
        "time": "2027-01-15T08:00:00.000+00:00",
        "level": "WARNING",
        "logger": "kinesumer",
        "message": "commit fails",
        "process": 1,
        "shard_id": "shard-0",
        "error": "no",
    }


def test_a_line_of_an_error_has_its_traceback() -> None:
    try:
        raise ValueError("no\ntotal")
    except ValueError:
        found = line(JsonFormatter(), msg="failed", exc_info=sys.exc_info())
    assert found["traceback"].endswith("ValueError: no\ntotal")


def test_a_field_of_the_caller_replaces_none_of_the_line() -> None:
    found = line(JsonFormatter(), msg="a", level="b", logger="c", time="d")
    assert (found["level"], found["logger"]) == ("WARNING", "kinesumer")
    assert found["time"].startswith("2027")


def test_a_line_is_ascii_whatever_its_text_is() -> None:
    assert line(JsonFormatter(), msg="half: \ud800")["message"] == "half: \ud800"
