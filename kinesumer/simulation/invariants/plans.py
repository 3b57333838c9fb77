"""What the judge says of plans: their parts exclude each other, and are contiguous."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.model.streams import HASH_KEYS
from kinesumer.simulation.invariants.permits import plan_of

if TYPE_CHECKING:
    from kinesumer.model.rows import Row
    from kinesumer.simulation.invariants.checker import Judge

Part = tuple[str, int, int]
"""Stream ARN, first and last hash key."""
KEPT = 50


def parts_of(row: Row) -> list[Part]:
    """Return the range that a member's row holds, in order."""
    streams = row["streams"]
    assert isinstance(streams, frozenset)
    arns, parts = sorted(streams), []
    for part in filter(None, str(row.get("range", "")).split(",")):
        place, _, ends = part.partition(":")
        first, _, last = ends.partition("-")
        end = int(last, 16) if last else HASH_KEYS - 1
        parts.append((arns[int(place)], int(first, 16), end))
    return sorted(parts)


class Plans:
    """Checks I12 at each assignment, as far as one shows it.

    That a plan's parts tile the space, and their sizes, can be told only when all of
    them have arrived: see ``settled``.
    """

    def __init__(self, judge: Judge, assignor: str) -> None:
        self._judge = judge
        self._assignor = assignor
        self._parts: dict[tuple[int, int], list[tuple[Part, object]]] = {}

    def assigned(self, row: Row) -> None:
        """A member was given its part of a plan."""
        plan, given = plan_of(row), parts_of(row)
        if self._assignor == "range" and len(given) > len({arn for arn, *_ in given}):
            self._fail(plan, row["sk"], "has a range that isn't contiguous")
        if plan not in self._parts and len(self._parts) == KEPT:
            del self._parts[next(iter(self._parts))]
        known = self._parts.setdefault(plan, [])
        for part in given:
            for other, client_id in known:
                if part[0] == other[0] and part[1] <= other[2] and other[1] <= part[2]:
                    self._fail(plan, row["sk"], f"shares {part} with {client_id}")
            known.append((part, row["sk"]))

    def _fail(self, plan: tuple[int, int], client_id: object, what: str) -> None:
        self._judge.fail("I12", f"plan {plan[0]}.{plan[1]}: {client_id} {what}")
