"""Test that every backend has the properties of a state store that we rely on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import pytest

from kinesumer.errors import StateStoreMissingError
from kinesumer.model.rows import Key, Row, Value
from kinesumer.ports import AllOf, AnyOf, Compare, Condition, Write, WriteResult

if TYPE_CHECKING:
    from kinesumer.ports import StateStore

# The module's tests share AWS clients, so they must run on one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = Key("member#app", "client-1")
ALWAYS = AllOf()
ABSENT = Compare("pk", "absent")
Operator = Literal["=", "<", "<=", "size<", "size=", "exists", "absent"]


def row(key: Key = KEY, /, **values: Value) -> Row:
    """Return the row of a key with these attributes."""
    return {"pk": key.pk, "sk": key.sk, **values}


async def put(store: StateStore, key: Key = KEY, /, **values: Value) -> None:
    """Store a whole row."""
    written = await store.write(Write(key, ALWAYS, values, replace=True))
    assert written == WriteResult(True, row(key, **values))


async def test_a_row_that_was_never_written_isnt_there(store: StateStore) -> None:
    assert await store.get(KEY) is None
    assert await store.query(KEY.pk) == []
    assert await store.query_not_updated_since(KEY.pk, "9") == []


@pytest.mark.parametrize(
    "value",
    [
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
    ],
    ids=lambda value: f"{type(value).__name__}-{str(value)[:8]!r}",
)
async def test_a_value_comes_back_as_it_was_written(
    store: StateStore, value: Value
) -> None:
    await put(store, value=value)
    for consistent in (True, False):
        got = await store.get(KEY, consistent=consistent)
        assert got == row(value=value)
        assert type(got["value"]) is type(value)


async def test_an_upsert_keeps_what_it_doesnt_name_and_returns_the_new_row(
    store: StateStore,
) -> None:
    first = await store.write(Write(KEY, ABSENT, {"beat": 1, "state": "up"}))
    assert first == WriteResult(True, row(beat=1, state="up"))
    second = await store.write(
        Write(
            KEY, Compare("beat", "=", 1), {"beat": 2, "range": "x"}, remove=("state",)
        )
    )
    assert second == WriteResult(True, row(beat=2, range="x"))
    assert await store.get(KEY) == row(beat=2, range="x")


async def test_removing_what_isnt_there_changes_nothing(store: StateStore) -> None:
    await put(store, beat=1)
    written = await store.write(Write(KEY, ALWAYS, remove=("owner", "claim")))
    assert written == WriteResult(True, row(beat=1))


async def test_a_replacement_drops_what_it_doesnt_name(store: StateStore) -> None:
    await put(store, beat=1, owner="a")
    await put(store, beat=2)
    assert await store.get(KEY) == row(beat=2)


async def test_a_deletion_leaves_nothing(store: StateStore) -> None:
    await put(store, dead=True)
    deletion = Write(KEY, Compare("dead", "=", True), delete=True)
    assert await store.write(deletion) == WriteResult(True, None)
    assert await store.get(KEY) is None
    assert await store.write(deletion) == WriteResult(False, None)


@pytest.mark.parametrize(
    "change", [{}, {"replace": True}, {"delete": True}], ids=["upsert", "put", "delete"]
)
async def test_a_refused_write_changes_nothing_and_returns_the_row_in_its_way(
    store: StateStore, change: dict[str, Any]
) -> None:
    refused = Write(KEY, Compare("epoch", "=", 4), {"epoch": 5})._replace(**change)
    assert await store.write(refused) == WriteResult(False, None)
    await put(store, epoch=3, owner="a", parents=frozenset({"p"}))
    there = row(epoch=3, owner="a", parents=frozenset({"p"}))
    assert await store.write(refused) == WriteResult(False, there)
    assert await store.get(KEY) == there


STORED: dict[str, Value] = {
    "number": 5,
    "text": "m",
    "yes": True,
    "set": frozenset({"a", "b"}),
    "long": "1" * 56,
    "empty": "",
}

MOTO_TYPES = pytest.mark.deviates("embedded", "moto compares across types")
MOTO_SIZE = pytest.mark.deviates("embedded", "moto fails on size() of what is absent")

TESTS: list[Any] = [
    ("number", "=", 5, True),
    ("number", "=", 6, False),
    ("number", "=", "5", False),
    ("number", "<", 5, False),
    ("number", "<", 6, True),
    ("number", "<=", 5, True),
    ("number", "<=", 4, False),
    pytest.param("number", "<", "6", False, marks=MOTO_TYPES),
    ("text", "=", "m", True),
    ("text", "=", "n", False),
    ("text", "<", "n", True),
    ("text", "<", "M", False),
    ("text", "<", "ma", True),
    ("text", "<=", "m", True),
    ("yes", "=", True, True),
    ("yes", "=", False, False),
    pytest.param("yes", "=", 1, False, marks=MOTO_TYPES),
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
    pytest.param("missing", "size<", 9, False, marks=MOTO_SIZE),
    ("pk", "exists", "", True),
]


@pytest.mark.parametrize(
    ("attribute", "op", "value", "holds"),
    TESTS,
    ids=lambda value: str(value)[:9],
)
async def test_each_comparison(
    store: StateStore, attribute: str, op: Operator, value: Value, holds: bool
) -> None:
    await put(store, KEY, **STORED)
    written = await store.write(Write(KEY, Compare(attribute, op, value), {"done": 1}))
    assert written.applied is holds
    after: dict[str, Value] = STORED | ({"done": 1} if holds else {})
    assert written.row == row(KEY, **after)


YES, NO = Compare("number", "=", 5), Compare("number", "=", 6)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (AllOf(YES, YES), True),
        (AllOf(YES, NO), False),
        (AnyOf(NO, YES), True),
        (AnyOf(NO, NO), False),
        (AllOf(YES, AnyOf(NO, YES)), True),
        (AnyOf(AllOf(YES, NO), AllOf(YES, YES)), True),
        (AnyOf(AllOf(YES, NO), NO), False),
        (AllOf(AnyOf(NO, YES), AnyOf(NO, AllOf(NO))), False),
    ],
    ids=str,
)
async def test_conditions_combine(
    store: StateStore, condition: Condition, holds: bool
) -> None:
    await put(store, number=5)
    assert (await store.write(Write(KEY, condition, {"x": 1}))).applied is holds


@pytest.mark.parametrize(
    ("stored", "new", "greater"),
    [
        ("9" * 55, "1" + "0" * 55, True),
        ("1" + "0" * 55, "9" * 55, False),
        ("5" * 56, "5" * 55 + "6", True),
        ("5" * 56, "5" * 56, False),
    ],
)
async def test_a_position_only_goes_forward_whatever_the_lengths(
    store: StateStore, stored: str, new: str, greater: bool
) -> None:
    await put(store, sequence_number=stored)
    forward = AnyOf(
        Compare("sequence_number", "size<", len(new)),
        AllOf(
            Compare("sequence_number", "size=", len(new)),
            Compare("sequence_number", "<", new),
        ),
    )
    written = await store.write(Write(KEY, forward, {"sequence_number": new}))
    assert written.applied is greater


async def test_names_that_dynamodb_reserves_are_fine(store: StateStore) -> None:
    reserved: dict[str, Value] = {"owner": "a", "index": 1, "range": "r", "role": "x"}
    await put(store, KEY, **reserved)
    conditions = tuple(Compare(name, "=", value) for name, value in reserved.items())
    write = Write(KEY, AllOf(*conditions), {"index": 2}, remove=("owner", "range"))
    assert await store.write(write) == WriteResult(True, row(index=2, role="x"))


# --- queries -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [
        ("", "", "0af"),
        ("a", "", "af"),
        ("", "a", "0a"),
        ("0", "a", "0a"),
        ("1", "e", "a"),
        ("b", "e", ""),
        ("f", "a", ""),
    ],
)
async def test_a_query_has_inclusive_bounds_and_an_order(
    store: StateStore, first: str, last: str, found: str
) -> None:
    for sk in "fa0":
        await put(store, Key("shard#a", sk), n=1)
    await put(store, Key("shard#b", "a"), n=2)
    for consistent in (True, False):
        rows = await store.query(
            "shard#a", first=first, last=last, consistent=consistent
        )
        assert rows == [row(Key("shard#a", sk), n=1) for sk in found]


async def test_rows_are_ordered_by_their_keys_bytes(store: StateStore) -> None:
    keys = ["B", "a", "a/", "a0", "aa", "ü", "\uffee", "\U0001f600"]
    for sk in reversed(keys):
        await put(store, Key("p", sk), n=1)
    assert [found["sk"] for found in await store.query("p")] == keys


async def test_a_query_follows_its_pages_over_a_megabyte(store: StateStore) -> None:
    keys = [Key("p", f"{number:04}") for number in range(60)]
    filling = "x" * 20_000
    for start in range(0, len(keys), 20):
        await asyncio.gather(
            *(put(store, key, filling=filling) for key in keys[start : start + 20])
        )
    rows = await store.query("p", consistent=True)
    assert [found["sk"] for found in rows] == [key.sk for key in keys]
    part = await store.query("p", first="0002", last="0058")
    assert len(part) == 57


async def test_the_index_finds_what_wasnt_updated_since(store: StateStore) -> None:
    await put(store, Key("member#a", "old"), last_update="2026-01-01T00:00:00Z", n=1)
    await put(store, Key("member#a", "edge"), last_update="2026-01-02T00:00:00Z")
    await put(store, Key("member#a", "new"), last_update="2026-01-02T00:00:01Z")
    await put(store, Key("member#a", "never"), n=1)
    await put(store, Key("member#b", "old"), last_update="2026-01-01T00:00:00Z")
    found = await store.query_not_updated_since("member#a", "2026-01-02T00:00:00Z")
    assert found == [Key("member#a", "old"), Key("member#a", "edge")]


# --- races ---------------------------------------------------------------------------


async def test_of_fifty_writers_on_one_row_exactly_one_wins(store: StateStore) -> None:
    await put(store, epoch=0)
    claims = await asyncio.gather(
        *(
            store.write(
                Write(
                    KEY, Compare("epoch", "=", 0), {"epoch": 1, "owner": f"c{number}"}
                )
            )
            for number in range(50)
        )
    )
    [winner] = [number for number, claim in enumerate(claims) if claim.applied]
    # Each rejected write learns the winner's row.
    assert {str(claim.row) for claim in claims} == {
        str(row(epoch=1, owner=f"c{winner}"))
    }
    assert await store.get(KEY) == row(epoch=1, owner=f"c{winner}")


async def test_of_fifty_who_create_a_row_exactly_one_does(store: StateStore) -> None:
    created = await asyncio.gather(
        *(
            store.write(Write(KEY, ABSENT, {"owner": f"c{number}"}, replace=True))
            for number in range(50)
        )
    )
    assert [claim.applied for claim in created].count(True) == 1


# --- the table -----------------------------------------------------------------------


async def test_a_tables_id_stays_the_same(store: StateStore) -> None:
    assert await store.verify() == await store.verify() != ""


async def test_a_missing_table_is_reported_by_every_operation(
    absent_store: StateStore,
) -> None:
    store = absent_store
    for operation in (
        store.verify(),
        store.get(KEY),
        store.query(KEY.pk),
        store.query_not_updated_since(KEY.pk, "9"),
        store.write(Write(KEY, ALWAYS, {"n": 1})),
        store.write(Write(KEY, ABSENT, {"n": 1}, replace=True)),
        store.write(Write(KEY, ALWAYS, delete=True)),
    ):
        with pytest.raises(StateStoreMissingError):
            await operation
