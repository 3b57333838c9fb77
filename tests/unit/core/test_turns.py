"""Test that keys take turns, and that none waits for two turns of another."""

from __future__ import annotations

import math
from collections import deque
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kinesumer.core.turns import Turns


class Key:
    """Something that items belong to."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


A, B, C = map(Key, "abc")


def queue(*items: str) -> Turns[Key, str]:
    """Return a queue of items, such as "a1", whose first letters name their keys."""
    turns, keys = Turns[Key, str](), {key.name: key for key in (A, B, C)}
    for item in items:
        turns.put(keys[item[0]], item)
    return turns


def served(turns: Turns[Key, str]) -> list[str]:
    """Let each item be a turn, and return the items."""
    order = []
    while turns:
        key, item = turns.take()
        turns.begin(key)
        order.append(item)
    return order


def test_keys_take_turns_in_the_order_of_their_first_items() -> None:
    turns = queue("b1", "b2", "a1", "b3", "c1", "a2")
    assert served(turns) == ["b1", "a1", "c1", "b2", "a2", "b3"]


def test_a_key_that_had_no_items_for_long_is_next() -> None:
    turns = queue("c1", "a1", "b1", "a2", "b2")
    for _ in range(3):
        turns.begin(turns.take()[0])
    turns.put(C, "c2")
    turns.begin(A)  # with an item from elsewhere
    turns.begin(B)
    assert served(turns) == ["c2", "a2", "b2"]


def test_taking_an_item_begins_no_turn() -> None:
    turns = queue("a1", "a2", "b1")
    assert turns.take() == (A, "a1")
    assert (turns.last_turn(A), turns.next_turn) == (0, 0)
    turns.begin(A)
    assert turns.last_turn(A) > turns.next_turn == turns.last_turn(B) == 0
    assert served(turns) == ["b1", "a2"]
    assert turns.next_turn == math.inf
    with pytest.raises(IndexError):
        turns.take()


def test_a_key_that_is_gone_is_forgotten() -> None:
    turns = Turns[Key, str]()
    turns.begin(Key("x"))
    assert not turns._last


class FairQueue(RuleBasedStateMachine):
    """A queue whose items are served, while keys also take turns elsewhere."""

    KEYS: ClassVar = [A, B, C, Key("d")]

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns[Key, int]()
        self.waiting: dict[Key, deque[int]] = {}
        self.count = 0
        # For each key with items, the other keys that had a turn since it waits.
        self.served: dict[Key, set[Key]] = {}

    @rule(key=st.sampled_from(KEYS))
    def put(self, key: Key) -> None:
        self.count += 1
        self.turns.put(key, self.count)
        self.waiting.setdefault(key, deque()).append(self.count)
        self.served.setdefault(key, set())

    @precondition(lambda self: self.turns)
    @rule()
    def serve(self) -> None:
        key, item = self.turns.take()
        assert item == self.waiting[key].popleft()
        if not self.waiting[key]:
            del self.waiting[key], self.served[key]
        for other, seen in self.served.items():
            assert other is key or key not in seen, "a second turn while another waits"
        self._begin(key)

    @rule(key=st.sampled_from(KEYS))
    def begin_elsewhere(self, key: Key) -> None:
        if self.turns.last_turn(key) < self.turns.next_turn:
            self._begin(key)

    def _begin(self, key: Key) -> None:
        self.turns.begin(key)
        for other, seen in self.served.items():
            seen.add(key)
            if other is key:
                seen.clear()

    @rule(key=st.sampled_from(KEYS))
    def drop(self, key: Key) -> None:
        assert list(self.turns.drop(key)) == list(self.waiting.pop(key, ()))
        self.served.pop(key, None)

    @invariant()
    def has_all_items(self) -> None:
        assert {key: deque(items) for key, items in self.turns} == self.waiting
        assert bool(self.turns) == bool(self.waiting)
        assert len(self.turns._order) == len(self.waiting)


TestFairQueue = FairQueue.TestCase
TestFairQueue.settings = settings(stateful_step_count=60)
