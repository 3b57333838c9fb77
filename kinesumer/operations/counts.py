"""How many records a seek skips or repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Count(NamedTuple):
    """What a seek does to one shard, or to several together."""

    skipped: int = 0
    """Records that no client has got, and none will get."""
    repeated: int = 0
    """Records that clients have got, and will get again."""
    exact: bool = True
    """Whether they were counted; else they are estimated from samples."""
    problem: str = ""
    """Why they couldn't be counted, or not all of them."""


def in_total(counts: Sequence[Count]) -> Count:
    """Return the sum of counts; its problem is the first one."""
    return Count(
        sum(count.skipped for count in counts),
        sum(count.repeated for count in counts),
        all(count.exact for count in counts),
        next((count.problem for count in counts if count.problem), ""),
    )
