"""The state store's table: made, and what is wrong with another one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.errors import (
    StateStoreMissingError,
    StateStoreSchemaError,
    StoreUnavailableError,
)
from kinesumer.wire.state_table import DEFINITION, INDEX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.aws.dynamodb import DynamoStateStore

POLL_SECONDS = 0.5


async def create_table(store: DynamoStateStore, *, wait_seconds: float = 60.0) -> str:
    """Create the state store's table, wait until it is active and return its id.

    A table that exists already is only verified. Raises StoreUnavailableError if it
    isn't active in time.
    """
    if await store.describe() is None:
        await store.create(DEFINITION)
    deadline = asyncio.get_running_loop().time() + wait_seconds
    while True:
        try:
            return await store.verify()
        except (StateStoreMissingError, StoreUnavailableError) as error:
            # Being created: DescribeTable may not even know it for a moment.
            if asyncio.get_running_loop().time() > deadline:
                raise StoreUnavailableError(
                    f"the table isn't ready after {wait_seconds:g} s: {error}"
                ) from error
        await asyncio.sleep(POLL_SECONDS)


def verified(table: str, description: Mapping[str, Any] | None) -> str:
    """Return the id of a table that can be a state store.

    Raises StateStoreMissingError, StateStoreSchemaError, or StoreUnavailableError while
    it is being created.
    """
    if description is None or description["TableStatus"] == "DELETING":
        raise missing(table)
    if description["TableStatus"] == "CREATING":
        raise StoreUnavailableError(f"table {table} is still being created")
    faults = list(_faults(description))
    if faults:
        raise StateStoreSchemaError(
            f"table {table} can't be a state store: {'; '.join(faults)}; use another "
            f"table, or delete this one and run: kinesumer init --table {table}"
        )
    created = description.get("CreationDateTime", "")
    return str(description.get("TableId") or created)


def missing(table: str) -> StateStoreMissingError:
    """Return the error for a table that doesn't exist."""
    return StateStoreMissingError(
        f"table {table} doesn't exist in this account and region; check them, or "
        f"create it with: kinesumer init --table {table}"
    )


class _Keys(NamedTuple):
    hash: str
    range: str

    def __str__(self) -> str:
        return f"{self.hash or 'none'} / {self.range or 'none'}"


def _keys(schema: list[Mapping[str, str]]) -> _Keys:
    names = {key["KeyType"]: key["AttributeName"] for key in schema}
    return _Keys(names.get("HASH", ""), names.get("RANGE", ""))


def _faults(description: Mapping[str, Any]) -> list[str]:
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
            "it is a global table, where the last writer wins and conditions don't hold"
        )
    return faults
