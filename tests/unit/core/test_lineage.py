"""Test what follows from listings and shard rows: first rows, repairs, plans, seeks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core import lineage
from kinesumer.core.lineage import Origin, Repairs
from kinesumer.model.positions import Position
from kinesumer.model.rows import ShardRow, StreamRow
from kinesumer.model.streams import HASH_KEYS, Shard, ShardKey, Start
from tests.support.lineage import LAST, histories

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SINCE = Start(type="AT_TIMESTAMP", timestamp=5.0)
STREAM = StreamRow(ARN, 1.0, SINCE)
HALF = HASH_KEYS // 2

PARENT = Shard("a", 0, LAST, ending_sequence_number="9")
LOW = Shard("low", 0, HALF - 1, ("a",))
HIGH = Shard("high", HALF, LAST, ("a",))
SPLIT = [PARENT, LOW, HIGH]
MERGED = Shard("m", 0, LAST, ("low", "high"))


def row(shard: Shard, *, ended: bool = False, ready: bool = False) -> ShardRow:
    made = lineage.new_row(ARN, shard)
    return made._replace(ended=ended, ready=ready)


def ids(rows: Sequence[ShardRow]) -> list[str]:
    return [row.key.shard_id for row in rows]


def test_leaves_are_the_shards_without_children_by_hash_key() -> None:
    assert lineage.leaves([HIGH, PARENT, LOW]) == [LOW, HIGH]


@pytest.mark.parametrize(
    ("listing", "complete"),
    [
        ([Shard("a", 0, LAST)], True),
        (SPLIT, True),
        ([*SPLIT, MERGED], True),
        ([LOW, HIGH], True),
        ([], False),
        ([PARENT, LOW], False),
        ([PARENT, HIGH], False),
        ([LOW, HIGH, Shard("x", HALF, LAST)], False),
        ([Shard("x", 1, LAST)], False),
    ],
)
def test_a_listing_counts_only_if_its_leaves_tile_the_hash_space(
    listing: list[Shard], complete: bool
) -> None:
    assert lineage.is_complete(listing) is complete


@pytest.mark.parametrize(
    ("listing", "rows", "expected"),
    [
        (SPLIT, SPLIT, True),
        (SPLIT, [], True),
        ([PARENT], [LOW], False),
        ([PARENT, LOW], [], False),
    ],
)
def test_a_listing_is_current_if_it_has_the_newest_row(
    listing: list[Shard], rows: list[Shard], *, expected: bool
) -> None:
    assert lineage.is_current(listing, map(row, rows)) is expected


def test_a_listing_of_shards_without_hash_keys_always_counts() -> None:
    points = [Shard("a", 3, 3), Shard("b", 7, 7)]
    assert lineage.is_complete(points)
    assert not lineage.is_complete([*points, LOW])


def test_children_open_when_the_parents_read_after_them_have_ended() -> None:
    child, parents = row(MERGED), [row(LOW, ended=True), row(HIGH, ended=True)]
    assert lineage.ready_children([child], parents, ()) == [child]
    assert lineage.ready_children([child], parents[:1], ()) == [child]
    assert lineage.ready_children([child], parents[:1], {"high"}) == []
    assert lineage.ready_children([child], [row(LOW), parents[1]], ()) == []
    assert lineage.ready_children([child._replace(ready=True)], parents, ()) == []


# --- first rows ---


def test_open_shards_begin_at_the_streams_start_and_can_be_claimed() -> None:
    first = lineage.first_rows(Origin(STREAM), [Shard("a", 0, LAST)])
    assert first == [ShardRow(ShardKey(ARN, "a"), 0, LAST, SINCE, ready=True)]


@pytest.mark.parametrize(
    ("listing", "before_start", "ended", "ready"),
    [
        (SPLIT, set(), [], ["a"]),
        (SPLIT, {"a"}, ["a"], ["a", "low", "high"]),
        ([LOW, HIGH], set(), [], ["low", "high"]),  # the parent has expired
    ],
)
def test_children_are_ready_once_their_parents_have_ended(
    listing: list[Shard], before_start: set[str], ended: list[str], ready: list[str]
) -> None:
    first = lineage.first_rows(Origin(STREAM, frozenset(before_start)), listing)
    assert ids([r for r in first if r.ended]) == ended
    assert ids([r for r in first if r.ready]) == ready
    assert {r.start for r in first} == {SINCE}
    assert [{*r.parents} for r in first] == [{*shard.parents} for shard in listing]


def test_checkpoints_of_go_are_imported_even_in_a_closed_shard() -> None:
    origin = Origin(STREAM, frozenset({"a"}), {"a": Position("7")})
    rows = {r.key.shard_id: r for r in lineage.first_rows(origin, SPLIT)}
    assert rows["a"].position == Position("7")
    assert not rows["a"].ended
    assert not rows["low"].ready
    assert rows["low"].start == Start.TRIM_HORIZON


# --- repairs ---

SHARDS = {shard.shard_id: shard for shard in (*SPLIT, MERGED)}


def described(rows: Sequence[ShardRow]) -> str:
    """Return rows as text, with E for ended rows and R for ready ones."""
    return " ".join(
        f"{row.key.shard_id}/{'E' * row.ended}{'R' * row.ready}".rstrip("/")
        for row in rows
    )


def rows_of(text: str) -> list[ShardRow]:
    """Return the rows that a text of ``described()`` stands for."""
    parts = (part.partition("/") for part in text.split())
    return [
        row(SHARDS[shard_id], ended="E" in flags, ready="R" in flags)
        for shard_id, _, flags in parts
    ]


@pytest.mark.parametrize(
    ("rows", "listing", "create", "ready", "prune"),
    [
        # rows that agree with the listing
        ("a/R low high", "a low high", "", "", ""),
        # missing children, which are ready if their parent has ended
        ("a/R", "a low high", "low high", "", ""),
        ("a/ER", "a low high", "low/R high/R", "", ""),
        # ancestors of ready shards were pruned, and get no new rows
        ("low/R high/R", "a low high", "", "", ""),
        ("m/R", "a low high m", "", "", ""),
        # a crash after "a" was marked ended, and before "low" was marked ready
        ("a/ER low high/R", "a low high", "", "low", ""),
        # a merged shard waits for both parents
        ("a/ER low/ER high/R m", "a low high m", "", "", ""),
        ("a/ER low/ER high/ER m", "a low high m", "", "m", ""),
        # a grandchild isn't ready if its parents only get their rows now
        ("a/E", "a low high m", "low/R high/R m", "", ""),
        # an ended shard that Kinesis no longer lists is pruned
        ("a/ER low/R high", "low", "", "high", "a"),
        # a parent that neither the table nor Kinesis knows counts as ended
        ("low", "low high", "high/R", "low", ""),
        # A waiting child doesn't show that its parents have ended: the owner of "high"
        # created the row of the merged child before "low" had one.
        ("a/R high/ER m", "a low high m", "low", "", ""),
        ("a/ER high/E m", "a low high m", "low/R", "", ""),
        # an old listing, which lacks shards that have rows
        ("a/ER low high/R", "a", "", "", ""),
    ],
)
def test_repairs_follow_from_rows_and_a_listing(
    rows: str, listing: str, create: str, ready: str, prune: str
) -> None:
    listed = [SHARDS[shard_id] for shard_id in listing.split()]
    repairs = lineage.repairs(ARN, rows_of(rows), listed)
    assert described(repairs.create) == create
    assert {child.start for child in repairs.create} <= {Start.TRIM_HORIZON}
    assert (" ".join(ids(repairs.ready)), " ".join(ids(repairs.prune))) == (
        ready,
        prune,
    )


def test_an_unreadable_row_is_not_created_and_has_not_ended() -> None:
    rows = rows_of("a/ER high/E m")
    repairs = lineage.repairs(ARN, rows, [*SPLIT, MERGED], unreadable={"low"})
    assert repairs == Repairs([], [], [], [])


OPEN, SPLIT_A = Shard("a", 0, LAST), [PARENT, LOW, HIGH]


@pytest.mark.parametrize(
    ("rows", "listing", "reopened"),
    [
        ([row(OPEN, ended=True)], [OPEN], ["a"]),
        ([row(OPEN)], [OPEN], []),
        ([row(PARENT, ended=True)], SPLIT_A, []),
        # closed, although its children aren't listed yet
        ([row(PARENT, ended=True)], [PARENT], []),
        # a server that doesn't say that a shard with children is closed
        ([row(OPEN, ended=True)], [OPEN, LOW, HIGH], []),
        ([row(LOW, ended=True), row(HIGH)], SPLIT_A, ["low"]),
    ],
)
def test_an_open_shard_cannot_have_ended(
    rows: list[ShardRow], listing: list[Shard], reopened: list[str]
) -> None:
    assert ids(lineage.repairs(ARN, rows, listing).reopen) == reopened


def test_ended_shards_count_neither_for_a_plan_nor_for_max_shards() -> None:
    assert lineage.open_shard_starts([row(LOW, ended=True), row(HIGH)]) == [HALF]
    assert lineage.unended_shard_starts([row(LOW, ended=True)]) == []
    rows = [row(PARENT), row(LOW), row(HIGH), row(HIGH, ended=True)]
    assert lineage.unended_shard_starts(rows) == [0, HALF]


@given(histories(), st.data())
def test_repairing_twice_changes_no_more_than_once(
    listing: list[Shard], data: st.DataObject
) -> None:
    known = data.draw(st.sets(st.sampled_from(listing)))
    ended = data.draw(st.sets(st.sampled_from(listing))) - {*lineage.leaves(listing)}
    rows = [row(shard, ended=shard in ended) for shard in known]
    repairs = lineage.repairs(ARN, rows, listing)
    ready = set(ids(repairs.ready))
    after = [r._replace(ready=r.ready or r.key.shard_id in ready) for r in rows]
    assert not any(lineage.repairs(ARN, after + repairs.create, listing))


@given(histories())
def test_a_plan_counts_the_open_shards(listing: list[Shard]) -> None:
    assert lineage.is_complete(listing)
    rows = [row(shard) for shard in listing]
    starts = [leaf.first_hash for leaf in lineage.leaves(listing)]
    assert lineage.open_shard_starts(rows) == starts


# --- seeks ---


def shard(shard_id: str, *parents: str, ended: bool = False) -> ShardRow:
    made = row(Shard(shard_id, 0, LAST, parents))
    return made._replace(ended=ended)


FAMILY = [shard("m", "b", "c"), shard("c", "a"), shard("b", "a"), shard("a")]
ENDED = [row._replace(ended=True, ready=True) for row in FAMILY]
RING = [shard("a", "b"), shard("b", "a"), shard("c", "b")]


@pytest.mark.parametrize(
    ("rows", "new", "generations", "waiting"),
    [
        # parents come first, and children wait for those that are seeked
        (FAMILY, [], ["a", "bc", "m"], "bcm"),
        (ENDED, [], ["a", "bc", "m"], "bcm"),
        # or still read, but not for those that stay ended or have no row
        ([shard("A"), shard("b", "A")], [], ["b"], "b"),
        ([shard("A", ended=True), shard("b", "A"), shard("c", "gone")], [], ["bc"], ""),
        # shards without a row get one in order
        ([shard("a")], [shard("b", "a")], ["a", "b"], "b"),
        # corrupt rows that form a ring are seeked
        (RING, [], ["abc"], "abc"),
    ],
)
def test_a_seek_goes_from_parents_to_children_that_wait_for_them(
    rows: list[ShardRow], new: list[ShardRow], generations: list[str], waiting: str
) -> None:
    """Shards with upper-case ids are not seeked."""
    seeked = {i for i in ids([*rows, *new]) if i.islower()}
    found = lineage.seek_steps(rows, new, seeked)
    steps = [step for generation in found for step in generation]
    assert [
        "".join(sorted(ids([s.row for s in each]))) for each in found
    ] == generations
    assert {step.row.key.shard_id for step in steps if step.waits} == {*waiting}
    assert [step.row for step in steps if step.is_new] == new
