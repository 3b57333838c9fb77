"""Test that rows and writes mean what they meant: a fleet may have two versions.

``schema/rows-v1.json`` has every write of version 1 of the rows, and what its clients
read from each row. If a change is meant, and clients of the former version can share a
table with it, write the file anew: ``python -m tests.unit.wire.test_rows_golden``.
Otherwise raise the version that ``create_group()`` stores.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kinesumer.model.rows import Row
from kinesumer.ports import Write
from kinesumer.telemetry.recorded_calls import condition_lists
from kinesumer.wire import rows
from tests.support.row_examples import READERS, WRITES

GOLDEN = Path(__file__).parents[3] / "schema" / "rows-v1.json"


def sorted_values(row: Row | dict[str, Any]) -> dict[str, Any]:
    return {
        name: sorted(value) if isinstance(value, frozenset) else value
        for name, value in sorted(row.items())
    }


def shown(write: Write) -> dict[str, Any]:
    return {
        "key": list(write.key),
        "condition": condition_lists(write.condition),
        "set": sorted_values(dict(write.set)),
        "remove": sorted(write.remove),
        "replace": write.replace,
        "delete": write.delete,
    }


def present() -> dict[str, Any]:
    """Return what the present code writes and reads."""
    written = {name: shown(write) for name, write in sorted(WRITES.items())}
    read = {
        name: {"row": sorted_values(row), "fields": fields(reader(row))}
        for name, (reader, row) in READERS.items()
    }
    found: dict[str, Any] = json.loads(
        json.dumps(
            {"table": rows.DEFINITION, "writes": written, "rows": read}, default=sorted
        )
    )
    return found


def fields(value: Any) -> dict[str, str]:
    """Return the fields of a row's named tuple, in an order that never changes."""
    return {
        name: repr(sorted(field) if isinstance(field, frozenset) else field)
        for name, field in value._asdict().items()
    }


def test_the_present_code_writes_what_version_1_wrote() -> None:
    golden, now = json.loads(GOLDEN.read_text()), present()

    assert now["table"] == golden["table"]
    for name, write in golden["writes"].items():
        assert now["writes"][name] == write, f"{name}: see the head of this file"


def test_the_present_code_reads_what_version_1_wrote() -> None:
    golden, now = json.loads(GOLDEN.read_text()), present()

    for name, read in golden["rows"].items():
        reader, _ = READERS[name]
        row = {
            attribute: frozenset(value) if isinstance(value, list) else value
            for attribute, value in read["row"].items()
        }
        found = fields(reader(row))
        # A later version may have more fields, with defaults.
        assert {each: found[each] for each in read["fields"]} == read["fields"], name
        assert now["rows"][name]["row"] == read["row"], name


def test_every_write_has_an_example_of_version_1() -> None:
    golden = json.loads(GOLDEN.read_text())

    assert sorted(golden["writes"]) == sorted(WRITES)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(present(), indent=1) + "\n")
