"""Test pictures of random fleets in terminals of random sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from kinesumer.ops.cli.terminal_view.band import ASCII, Glyphs
from kinesumer.ops.cli.terminal_view.drawing import MIN_WIDTH, Frame, draw
from tests.unit.ops.cli.terminal_view.test_drawing import member, seen, shard

if TYPE_CHECKING:
    from kinesumer.model.rows import MemberRow, ShardRow

NAMES = ["a", "b", "店舗", "\x1b[31m", "x" * 90]
BANDS = ("lag ", "shards ", "children ", "plan ", "注文注文 ", "ssssssss ")
PLACES = st.tuples(st.integers(0, 15), st.integers(0, 15)).map(sorted)


@st.composite
def members(draw_: st.DrawFn) -> list[MemberRow]:
    """Draw clients: some without a range, some with overlapping ranges."""
    names = draw_(st.lists(st.sampled_from(NAMES), unique=True))
    found = []
    for name in names:
        first, last = draw_(PLACES)
        row = member(name, first, last, drained=draw_(st.booleans()))
        found.append(row._replace(range=None) if draw_(st.booleans()) else row)
    return found


@st.composite
def shards(draw_: st.DrawFn) -> list[ShardRow]:
    """Draw shards with gaps, overlaps, and cycles of parents."""
    found = []
    for number in range(draw_(st.integers(0, 12))):
        first, last = draw_(PLACES)
        found.append(
            shard(
                number,
                first,
                last,
                draw_(st.sampled_from(["", "gone", *NAMES])),
                stream=draw_(st.sampled_from(["orders", "s" * 80, "注文" * 3])),
                ready=draw_(st.booleans()),
                ended=draw_(st.booleans()),
                paused=draw_(st.booleans()),
                parents=draw_(
                    st.frozensets(
                        st.integers(0, 12).map(lambda n: f"shardId-{n:012}"), max_size=2
                    )
                ),
            )
        )
    return found


@given(
    members(),
    shards(),
    st.lists(st.integers(0, 10**9), max_size=12),
    st.integers(1, 250),
    st.none() | st.integers(1, 70),
    st.sampled_from([ASCII, Glyphs(), Glyphs(fill=True)]),
)
def test_any_fleet_has_a_picture_that_fits(
    who: list[MemberRow],
    what: list[ShardRow],
    behind: list[int],
    width: int,
    height: int | None,
    glyphs: Glyphs,
) -> None:
    lines = draw(seen(who, what, behind), Frame(width, height, glyphs))
    assert lines
    assert height is None or len(lines) <= height
    for line in lines:
        assert "\x1b" not in line.plain
        label = line.plain.partition(" ")[0]
        if line.plain.lstrip().startswith(BANDS):
            assert line.cell_len <= max(width, MIN_WIDTH), label
