"""The properties of a state store with many writers, and without its table."""

from __future__ import annotations

import asyncio

from kinesumer.errors import StateStoreMissingError
from kinesumer.ports import Compare, Write
from kinesumer.testing.trial.acceptance.check import (
    AT_ONCE,
    Check,
    expect,
    expect_equal,
    expect_error,
    registrar,
)
from kinesumer.testing.trial.acceptance.contract.store import (
    ABSENT,
    ALWAYS,
    Stores,
    put,
    row,
)

RACE_CHECKS: list[Check[[Stores]]] = []
check = registrar(RACE_CHECKS)


@check(0)
async def of_fifty_writers_on_one_row_exactly_one_wins(stores: Stores) -> None:
    store, key = stores.store, stores.key()
    await put(store, key, epoch=0)
    claims = await asyncio.gather(
        *(
            store.write(
                Write(
                    key, Compare("epoch", "=", 0), {"epoch": 1, "owner": f"c{number}"}
                )
            )
            for number in range(AT_ONCE)
        )
    )
    winners = [number for number, claim in enumerate(claims) if claim.applied]
    expect_equal(len(winners), 1, "writers that won")
    # Each rejected write learns the winner's row.
    expected = row(key, epoch=1, owner=f"c{winners[0]}")
    for claim in claims:
        expect_equal(claim.row, expected, "the row that a writer learned")
    expect_equal(await store.get(key), expected)


@check(0)
async def of_fifty_who_create_a_row_exactly_one_does(stores: Stores) -> None:
    store, key = stores.store, stores.key()
    created = await asyncio.gather(
        *(
            store.write(Write(key, ABSENT, {"owner": f"c{number}"}, replace=True))
            for number in range(AT_ONCE)
        )
    )
    winners = sum(claim.applied for claim in created)
    expect_equal(winners, 1, "writers that created the row")


# --- the table ------------------------------------------------------------------------


@check(0)
async def a_tables_id_stays_the_same(stores: Stores) -> None:
    first, second = await stores.store.verify(), await stores.store.verify()
    expect_equal(second, first)
    expect(first != "", "the table has no id")


@check(0)
async def a_missing_table_is_reported_by_every_operation(stores: Stores) -> None:
    store, key = stores.absent, stores.key()
    for operation in (
        store.verify(),
        store.get(key),
        store.query(key.pk),
        store.query_not_updated_since(key.pk, "9"),
        store.write(Write(key, ALWAYS, {"n": 1})),
        store.write(Write(key, ABSENT, {"n": 1}, replace=True)),
        store.write(Write(key, ALWAYS, delete=True)),
    ):
        with expect_error(StateStoreMissingError):
            await operation
