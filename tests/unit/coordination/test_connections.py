"""Test the names of a client and of its state store."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer import (
    Kinesumer,
)
from kinesumer.config import STATE_STORE
from kinesumer.errors import (
    ConfigurationError,
)

UNSTORABLE = ["", "  ", "a#b", "new\nline", "x" * 256, "ü" * 128]


@pytest.mark.parametrize("name", UNSTORABLE)
@pytest.mark.parametrize("what", ["app", "client_id", "table"])
def test_names_that_cannot_be_part_of_a_key_are_refused(what: str, name: Any) -> None:
    names: dict[str, Any] = {"app": "app", "table": "table", what: name}
    with pytest.raises(ConfigurationError, match=f"{what}=.* choose another one"):
        Kinesumer(**names)


@pytest.mark.parametrize("name", ["a", "a b", "ünï", "x" * 255, "a/b:c.d"])
def test_other_names_are_accepted(name: str) -> None:
    assert Kinesumer(name, table=name, client_id=name).client_id == name


def test_the_table_is_that_of_the_environment_or_the_commands_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KINESUMER_TABLE", raising=False)
    assert Kinesumer("app").table == STATE_STORE
    monkeypatch.setenv("KINESUMER_TABLE", "other")
    assert Kinesumer("app").table == "other"
    assert Kinesumer("app", table="named").table == "named"
    monkeypatch.setenv("KINESUMER_TABLE", "a#b")
    with pytest.raises(ConfigurationError, match="table='a#b' contains"):
        Kinesumer("app")


def test_clients_without_an_id_get_a_unique_one() -> None:
    one, other = (Kinesumer("app", table="table").client_id for _ in range(2))
    assert one != other
