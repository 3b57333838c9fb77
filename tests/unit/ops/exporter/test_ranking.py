"""Test that a selection of the greatest values is right, and steady under noise."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.ops.exporter.collector import KEEP_RATIO, greatest

values = st.dictionaries(st.text(max_size=3), st.floats(0, 100), max_size=20)


@given(values, st.integers(0, 25))
def test_without_a_selection_the_greatest_are_selected(
    values: dict[str, float], count: int
) -> None:
    chosen = greatest(values, (), count)
    assert [values[key] for key in chosen] == sorted(values.values())[::-1][:count]


@given(values, st.sets(st.text(max_size=3)), st.integers(0, 25))
def test_nothing_left_out_is_much_greater_than_what_is_selected(
    values: dict[str, float], selected: set[str], count: int
) -> None:
    chosen = greatest(values, selected, count)
    assert len(set(chosen)) == min(count, len(values))
    least = min((values[key] for key in chosen), default=0.0)
    for key in set(values) - set(chosen) if count else ():
        assert values[key] <= KEEP_RATIO * least


def test_noise_changes_nothing() -> None:
    random, names = Random(1), [f"shard {number}" for number in range(100)]
    chosen = greatest(dict.fromkeys(names, 1.0), (), 20)
    for _ in range(100):
        noisy = {name: random.uniform(0.82, 1.22) for name in names}
        assert set(greatest(noisy, chosen, 20)) == set(chosen)


@pytest.mark.parametrize(("new", "expected"), [(1.4, "a"), (1.6, "b")])
def test_a_much_greater_value_takes_the_place_of_a_selected_one(
    new: float, expected: str
) -> None:
    assert greatest({"a": 1.0, "b": new}, ("a",), 1) == (expected,)


def test_of_equal_values_a_selected_one_stays() -> None:
    assert greatest({"a": 0.0, "b": 0.0, "c": 0.0}, ("c",), 2) == ("c", "a")
