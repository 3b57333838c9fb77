"""Checks whether a table can be the state store's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.aws.errors import (
    missing_table,
)
from kinesumer.errors import (
    StateStoreSchemaError,
    StoreUnavailableError,
)
from kinesumer.wire.table_definition import INDEX

if TYPE_CHECKING:
    from collections.abc import Mapping


def verified(table: str, description: Mapping[str, Any] | None) -> str:
    """Return the id of a table that can be a state store.

    Raise StateStoreMissingError or StateStoreSchemaError, or StoreUnavailableError
    while the table is being created.
    """
    if description is None or description["TableStatus"] == "DELETING":
        raise missing_table(table)
    if description["TableStatus"] == "CREATING":
        raise StoreUnavailableError(f"table {table} is still being created: wait")
    faults = list(_schema_errors(description))
    if faults:
        raise StateStoreSchemaError(
            f"table {table} can't be a state store: {'; '.join(faults)}; use another "
            f"table, or delete this one and run: kinesumer init --table {table}"
        )
    created = description.get("CreationDateTime", "")
    return str(description.get("TableId") or created)


class _Keys(NamedTuple):
    hash: str
    range: str

    def __str__(self) -> str:
        return f"{self.hash or 'none'} / {self.range or 'none'}"


def _keys(schema: list[Mapping[str, str]]) -> _Keys:
    names = {key["KeyType"]: key["AttributeName"] for key in schema}
    return _Keys(names.get("HASH", ""), names.get("RANGE", ""))


def _schema_errors(description: Mapping[str, Any]) -> list[str]:
    faults = []
    keys = _keys(description["KeySchema"])
    if keys != _Keys("pk", "sk"):
        faults.append(f"its keys are {keys}, not pk / sk")
    indexes = {
        index["IndexName"]: index
        for index in description.get("LocalSecondaryIndexes", ())
    }
    if INDEX not in indexes:
        faults.append(f"it has no local secondary index {INDEX}")
    else:
        keys = _keys(indexes[INDEX]["KeySchema"])
        if keys != _Keys("pk", "last_update"):
            faults.append(f"the keys of {INDEX} are {keys}, not pk / last_update")
    types = {
        attribute["AttributeName"]: attribute["AttributeType"]
        for attribute in description["AttributeDefinitions"]
    }
    faults += [
        f"{name} is of type {types[name]}, not S"
        for name in ("pk", "sk", "last_update")
        if types.get(name, "S") != "S"
    ]
    if description.get("Replicas"):
        faults.append(
            "it is a global table, where the last writer wins in spite of conditions"
        )
    return faults
