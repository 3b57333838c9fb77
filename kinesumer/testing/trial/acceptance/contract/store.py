"""The properties of a state store, also with many writers, and without its table."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, NamedTuple

from kinesumer.errors import StateStoreMissingError
from kinesumer.model.rows import Key, Row, Value
from kinesumer.ports import (
    AllOf,
    AnyOf,
    Compare,
    Condition,
    StateStore,
    Write,
    WriteResult,
)
from kinesumer.testing.trial.acceptance.check import (
    AT_ONCE,
    Check,
    expect,
    expect_equal,
    expect_error,
    registrar,
)

ALWAYS = AllOf()
ABSENT = Compare("pk", "absent")
Operator = Literal["=", "<", "<=", "size<", "size=", "exists", "absent"]


class Stores(NamedTuple):
    """A state store, one whose table doesn't exist, and the check's partitions."""

    store: StateStore
    absent: StateStore
    # The prefix of all partitions of the check, which no other check uses.
    scope: str

    def key(self, sk: str = "client-1", pk: str = "member#app") -> Key:
        """Return a key of the check."""
        return Key(f"{self.scope}#{pk}", sk)


STORE_CHECKS: list[Check[[Stores]]] = []
check = registrar(STORE_CHECKS)


def row(key: Key, /, **values: Value) -> Row:
    """Return the row of a key with these attributes."""
    return {"pk": key.pk, "sk": key.sk, **values}


async def put(store: StateStore, key: Key, /, **values: Value) -> None:
    """Store a whole row."""
    written = await store.write(Write(key, ALWAYS, values, replace=True))
    expect_equal(written, WriteResult(True, row(key, **values)), "the result of a put")


# --- rows -----------------------------------------------------------------------------


@check(0)
async def a_row_that_was_never_written_is_not_there(stores: Stores) -> None:
    store, key = stores.store, stores.key()
    expect_equal(await store.get(key), None)
    expect_equal(await store.query(key.pk), [])
    expect_equal(await store.query_not_updated_since(key.pk, "9"), [])


VALUES: list[Value] = [
    "text",
    "",
    "ünïcödé \N{SNOWMAN} \x00\n",
    "x" * 5000,
    0,
    -1,
    2**63,
    10**37,
    True,
    False,
    frozenset({"one"}),
    frozenset({"b", "a", "ü"}),
]


@check(0)
async def a_value_comes_back_as_it_was_written(stores: Stores) -> None:
    for number, value in enumerate(VALUES):
        key = stores.key(f"{number}")
        await put(stores.store, key, value=value)
        for consistent in (True, False):
            got = await stores.store.get(key, consistent=consistent)
            if not consistent and got is None:
                continue  # an eventually consistent read may be older than the write
            expect_equal(got, row(key, value=value))
            expect_equal(type((got or {})["value"]), type(value), f"type of {value!r}")


@check(0)
async def an_upsert_keeps_what_it_does_not_name_and_returns_the_new_row(
    stores: Stores,
) -> None:
    store, key = stores.store, stores.key()
    first = await store.write(Write(key, ABSENT, {"beat": 1, "state": "up"}))
    expect_equal(first, WriteResult(True, row(key, beat=1, state="up")))
    second = await store.write(
        Write(
            key, Compare("beat", "=", 1), {"beat": 2, "range": "x"}, remove=("state",)
        )
    )
    expect_equal(second, WriteResult(True, row(key, beat=2, range="x")))
    expect_equal(await store.get(key), row(key, beat=2, range="x"))
    third = await store.write(Write(key, ALWAYS, remove=("owner", "claim")))
    expect_equal(third, second, "the removal of what isn't there")
    await put(store, key, beat=3)
    expect_equal(await store.get(key), row(key, beat=3), "after a replacement")


@check(0)
async def a_deletion_leaves_nothing(stores: Stores) -> None:
    store, key = stores.store, stores.key()
    await put(store, key, dead=True)
    deletion = Write(key, Compare("dead", "=", True), delete=True)
    expect_equal(await store.write(deletion), WriteResult(True, None))
    expect_equal(await store.get(key), None)
    expect_equal(await store.write(deletion), WriteResult(False, None))


@check(0)
async def a_refused_write_changes_nothing_and_returns_the_row_in_its_way(
    stores: Stores,
) -> None:
    store = stores.store
    changes: dict[str, dict[str, Any]] = {
        "upsert": {},
        "put": {"replace": True},
        "delete": {"delete": True},
    }
    for name, change in changes.items():
        key = stores.key(name)
        write = Write(key, Compare("epoch", "=", 4), {"epoch": 5})
        refused = write._replace(**change)
        expect_equal(await store.write(refused), WriteResult(False, None), name)
        there: dict[str, Value] = {
            "epoch": 3,
            "owner": "a",
            "parents": frozenset({"p"}),
        }
        await put(store, key, **there)
        expected = row(key, **there)
        expect_equal(await store.write(refused), WriteResult(False, expected), name)
        expect_equal(await store.get(key), expected, name)


# --- conditions -----------------------------------------------------------------------

STORED: dict[str, Value] = {
    "number": 5,
    "text": "m",
    "yes": True,
    "set": frozenset({"a", "b"}),
    "long": "1" * 56,
    "empty": "",
}
COMPARISONS: list[tuple[str, Operator, Value, bool]] = [
    ("number", "=", 5, True),
    ("number", "=", 6, False),
    ("number", "=", "5", False),
    ("number", "<", 5, False),
    ("number", "<", 6, True),
    ("number", "<=", 5, True),
    ("number", "<=", 4, False),
    ("number", "<", "6", False),
    ("text", "=", "m", True),
    ("text", "=", "n", False),
    ("text", "<", "n", True),
    ("text", "<", "M", False),
    ("text", "<", "ma", True),
    ("text", "<=", "m", True),
    ("yes", "=", True, True),
    ("yes", "=", False, False),
    ("yes", "=", 1, False),
    ("set", "=", frozenset({"b", "a"}), True),
    ("set", "=", frozenset({"a"}), False),
    ("long", "size<", 57, True),
    ("long", "size<", 56, False),
    ("long", "size=", 56, True),
    ("long", "size=", 55, False),
    ("empty", "size<", 1, True),
    ("empty", "exists", "", True),
    ("set", "exists", "", True),
    ("text", "absent", "", False),
    ("missing", "absent", "", True),
    ("missing", "exists", "", False),
    ("missing", "=", "", False),
    ("missing", "<", 1, False),
    ("missing", "size<", 9, False),
    ("pk", "exists", "", True),
]


@check(0)
async def each_comparison_holds_only_if_it_is_true(stores: Stores) -> None:
    for number, (attribute, op, value, holds) in enumerate(COMPARISONS):
        key = stores.key(f"{number}")
        await put(stores.store, key, **STORED)
        write = Write(key, Compare(attribute, op, value), {"done": 1})
        written = await stores.store.write(write)
        text = f"{attribute} {op} {value!r}"
        expect_equal(written.applied, holds, text)
        after: dict[str, Value] = STORED | ({"done": 1} if holds else {})
        expect_equal(written.row, row(key, **after), text)


YES, NO = Compare("number", "=", 5), Compare("number", "=", 6)
CONDITIONS: list[tuple[Condition, bool]] = [
    (AllOf(YES, YES), True),
    (AllOf(YES, NO), False),
    (AnyOf(NO, YES), True),
    (AnyOf(NO, NO), False),
    (AllOf(YES, AnyOf(NO, YES)), True),
    (AnyOf(AllOf(YES, NO), AllOf(YES, YES)), True),
    (AnyOf(AllOf(YES, NO), NO), False),
    (AllOf(AnyOf(NO, YES), AnyOf(NO, AllOf(NO))), False),
]


@check(0)
async def conditions_combine(stores: Stores) -> None:
    for number, (condition, holds) in enumerate(CONDITIONS):
        key = stores.key(f"{number}")
        await put(stores.store, key, number=5)
        written = await stores.store.write(Write(key, condition, {"x": 1}))
        expect_equal(written.applied, holds, str(condition))


@check(0)
async def a_position_only_goes_forward_whatever_the_lengths(stores: Stores) -> None:
    for number, (stored, new, greater) in enumerate(
        [
            ("9" * 55, "1" + "0" * 55, True),
            ("1" + "0" * 55, "9" * 55, False),
            ("5" * 56, "5" * 55 + "6", True),
            ("5" * 56, "5" * 56, False),
        ]
    ):
        key = stores.key(f"{number}")
        await put(stores.store, key, sequence_number=stored)
        forward = AnyOf(
            Compare("sequence_number", "size<", len(new)),
            AllOf(
                Compare("sequence_number", "size=", len(new)),
                Compare("sequence_number", "<", new),
            ),
        )
        write = Write(key, forward, {"sequence_number": new})
        written = await stores.store.write(write)
        expect_equal(written.applied, greater, f"from {stored} to {new}")


@check(0)
async def names_that_dynamodb_reserves_are_accepted(stores: Stores) -> None:
    store, key = stores.store, stores.key()
    reserved: dict[str, Value] = {"owner": "a", "index": 1, "range": "r", "role": "x"}
    await put(store, key, **reserved)
    conditions = tuple(Compare(name, "=", value) for name, value in reserved.items())
    write = Write(key, AllOf(*conditions), {"index": 2}, remove=("owner", "range"))
    written = await store.write(write)
    expect_equal(written, WriteResult(True, row(key, index=2, role="x")))


# --- queries --------------------------------------------------------------------------


@check(0)
async def a_query_has_inclusive_bounds_and_an_order(stores: Stores) -> None:
    store = stores.store
    for sk in "fa0":
        await put(store, stores.key(sk, "shard#a"), n=1)
    await put(store, stores.key("a", "shard#b"), n=2)
    partition = stores.key(pk="shard#a").pk
    for first, last, found in (
        ("", "", "0af"),
        ("a", "", "af"),
        ("", "a", "0a"),
        ("0", "a", "0a"),
        ("1", "e", "a"),
        ("b", "e", ""),
        ("f", "a", ""),
    ):
        rows = await store.query(partition, first=first, last=last, consistent=True)
        expected = [row(stores.key(sk, "shard#a"), n=1) for sk in found]
        expect_equal(rows, expected, f"from {first!r} to {last!r}")


@check(0)
async def rows_are_ordered_by_their_keys_bytes(stores: Stores) -> None:
    keys = ["B", "a", "a/", "a0", "aa", "ü", "\uffee", "\U0001f600"]
    for sk in reversed(keys):
        await put(stores.store, stores.key(sk), n=1)
    rows = await stores.store.query(stores.key().pk, consistent=True)
    expect_equal([found["sk"] for found in rows], keys)


@check(0)
async def a_query_follows_its_pages_over_a_megabyte(stores: Stores) -> None:
    store = stores.store
    keys = [stores.key(f"{number:04}") for number in range(60)]
    filling = "x" * 20_000
    for start in range(0, len(keys), 20):
        await asyncio.gather(
            *(put(store, key, filling=filling) for key in keys[start : start + 20])
        )
    rows = await store.query(stores.key().pk, consistent=True)
    expect_equal([found["sk"] for found in rows], [key.sk for key in keys])
    part = await store.query(
        stores.key().pk, first="0002", last="0058", consistent=True
    )
    expect_equal(len(part), 57)


@check(0)
async def the_index_finds_what_was_not_updated_since(stores: Stores) -> None:
    store = stores.store
    old, edge = stores.key("old"), stores.key("edge")
    await put(store, old, last_update="2026-01-01T00:00:00Z", n=1)
    await put(store, edge, last_update="2026-01-02T00:00:00Z")
    await put(store, stores.key("new"), last_update="2026-01-02T00:00:01Z")
    await put(store, stores.key("never"), n=1)
    other = stores.key("old", "member#b")
    await put(store, other, last_update="2026-01-01T00:00:00Z")
    expected = [old, edge]
    # DynamoDB's index follows the table within a moment.
    for _ in range(50):
        found = await store.query_not_updated_since(old.pk, "2026-01-02T00:00:00Z")
        if found == expected:
            break
        await asyncio.sleep(0.1)
    expect_equal(found, expected)


# --- many writers ---------------------------------------------------------------------


async def _at_once(stores: Stores, write: Write) -> list[WriteResult]:
    """Send one write at once for many owners, and return the results."""
    owners = [f"c{number}" for number in range(AT_ONCE)]
    writes = (write._replace(set={**write.set, "owner": owner}) for owner in owners)
    return await asyncio.gather(*map(stores.store.write, writes))


@check(0)
async def of_fifty_writers_on_one_row_exactly_one_wins(stores: Stores) -> None:
    store, key = stores.store, stores.key()
    await put(store, key, epoch=0)
    write = Write(key, Compare("epoch", "=", 0), {"epoch": 1})
    claims = await _at_once(stores, write)
    winners = [number for number, claim in enumerate(claims) if claim.applied]
    expect_equal(len(winners), 1, "writers that won")
    # Each rejected write learns the winner's row.
    expected = row(key, epoch=1, owner=f"c{winners[0]}")
    for claim in claims:
        expect_equal(claim.row, expected, "the row that a writer learned")
    expect_equal(await store.get(key), expected)


@check(0)
async def of_fifty_who_create_a_row_exactly_one_does(stores: Stores) -> None:
    created = await _at_once(stores, Write(stores.key(), ABSENT, replace=True))
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
