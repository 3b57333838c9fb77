"""The table that init and the embedded AWS create is the one that schema/ describes."""

from __future__ import annotations

import json
from pathlib import Path

from kinesumer.wire.table_definition import DEFINITION, STATE_STORE

SCHEMA = Path(__file__).parents[3] / "schema" / "state-store.json"


def test_code_describes_the_same_table() -> None:
    assert DEFINITION | {"TableName": STATE_STORE} == json.loads(SCHEMA.read_text())
