"""The low watermark: the end of what is done without a gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from kinesumer.handlers.watermark import Watermark

if TYPE_CHECKING:
    from random import Random


@given(st.integers(0, 40), st.integers(1, 10), st.randoms(use_true_random=False))
def test_it_never_passes_a_record_that_is_not_done(
    count: int, at_once: int, wait_turn: Random
) -> None:
    watermark, done = Watermark(), set[int]()
    order = wait_turn.sample(range(count), count)
    while order:
        part, order = order[:at_once], order[at_once:]
        watermark.mark(part)
        done.update(part)
        first_undone = next(n for n in range(count + 1) if n not in done)
        assert watermark.value == first_undone


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20))))
def test_ranges_count_like_their_offsets(bounds: list[tuple[int, int]]) -> None:
    by_range, by_offset = Watermark(), Watermark()
    for first, stop in bounds:
        by_range.mark(range(first, stop))
        by_offset.mark(list(range(first, stop)))
        assert by_range.value == by_offset.value
