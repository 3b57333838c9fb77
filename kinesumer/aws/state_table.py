"""The name of the state store's table, and the creation of the table."""

from __future__ import annotations

import os
from typing import NamedTuple

from kinesumer.wire.rows import STATE_STORE

TABLE_VARIABLE = "KINESUMER_TABLE"


class StateTable(NamedTuple):
    """A table that can be a state store, as ``create_table()`` left it."""

    name: str
    region: str
    """The AWS region in which the table is."""
    table_id: str
    """DynamoDB's id of the table. A table that is created again has another id."""
    created: bool
    """True if the call created the table, False if the table existed before."""


def default_table() -> str:
    """Return the variable ``KINESUMER_TABLE``, or else ``kinesumer-state-store``."""
    return os.environ.get(TABLE_VARIABLE) or STATE_STORE


async def create_table(
    table: str | None = None,
    *,
    region: str | None = None,
    session: object | None = None,
    point_in_time_recovery: bool = False,
    deletion_protection: bool = False,
) -> StateTable:
    """Create the state store's table and wait until it is active, or verify it.

    With ``point_in_time_recovery``, DynamoDB keeps backups of the last 35 days; with
    ``deletion_protection``, it refuses to delete the table. Both may be turned on for
    an existing table, which isn't changed otherwise. The other arguments have the same
    meaning and the same defaults as those of ``Kinesumer``. The command ``kinesumer
    init`` does the same.

    Raises StateStoreSchemaError if the table exists but has other keys or indexes,
    StoreUnavailableError if the table is not active within a minute, and
    AccessDeniedError, CredentialsError or ConfigurationError.
    """
    # Imported here since these modules load slowly and ``default_table()`` does not
    # need them.
    from kinesumer.aws.dynamodb import ensure_table, open_store, protect_table
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.validation import validate_name

    name = validate_name("table", default_table() if table is None else table)
    async with ClientFactory(session, region=region) as clients:
        store = await open_store(clients, name)
        existed = await store.describe() is not None
        table_id = await ensure_table(store)
        await protect_table(
            store,
            point_in_time_recovery=point_in_time_recovery,
            deletion_protection=deletion_protection,
        )
        assert clients.region is not None  # no client can be opened without a region
        return StateTable(name, clients.region, table_id, not existed)
