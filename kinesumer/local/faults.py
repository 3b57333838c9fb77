"""Faults on demand: which requests go wrong, how, how often and for how long."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    import random

Kind = Literal[
    "throttle", "error", "latency", "drop", "refuse", "expired_iterator", "empty_page"
]
"""
- ``throttle``: refused as too fast, not applied
- ``error``: HTTP 500, not applied
- ``latency``: applied ``latency_seconds`` later
- ``drop``: applied, but the connection closes without an answer
- ``refuse``: the connection closes without an answer, not applied
- ``expired_iterator``: ExpiredIteratorException (GetRecords only)
- ``empty_page``: no records although there are some (GetRecords only)
"""


_READING = ("expired_iterator", "empty_page")


class Call(NamedTuple):
    """The fields of a request that faults and the request log use."""

    service: str
    operation: str
    resource: str = "*"
    """The ARN of the stream, table or role."""
    shard: str | None = None
    account: str = ""
    caller: str = ""
    access_key: str = ""
    user_agent: str = ""

    @property
    def action(self) -> str:
        """The action's name in IAM policies."""
        return f"{self.service}:{self.operation}"


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A failure of the calls that match every pattern.

    ``resource`` matches the whole ARN or the name at its end; ``user_agent`` any part
    of the header. Without ``count`` and ``seconds`` a fault lasts until it is removed.
    """

    kind: Kind
    service: str = "*"
    operation: str = "*"
    resource: str = "*"
    shard: str = "*"
    account: str = "*"
    access_key: str = "*"
    user_agent: str = ""
    probability: float = 1.0
    count: int | None = None
    seconds: float | None = None
    latency_seconds: float = 0.0

    def matches(self, call: Call) -> bool:
        """Return whether this fault affects a call."""
        if self.kind in _READING and call.operation != "GetRecords":
            return False
        name = call.resource.rpartition("/")[2]
        return (
            fnmatchcase(call.service, self.service)
            and fnmatchcase(call.operation, self.operation)
            and (self.resource == name or fnmatchcase(call.resource, self.resource))
            and fnmatchcase(call.shard or "", self.shard)
            and fnmatchcase(call.account, self.account)
            and fnmatchcase(call.access_key, self.access_key)
            and self.user_agent in call.user_agent
        )


class Faults:
    """The active faults."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._active: dict[int, tuple[Fault, float | None]] = {}
        self._left: dict[int, int] = {}
        self._last = 0

    def add(self, fault: Fault, now: float) -> int:
        """Add a fault and return its number."""
        self._last += 1
        until = None if fault.seconds is None else now + fault.seconds
        self._active[self._last] = (fault, until)
        if fault.count is not None:
            self._left[self._last] = fault.count
        return self._last

    def remove(self, number: int | None = None) -> None:
        """End one fault, or all faults."""
        if number is None:
            self._active.clear()
            self._left.clear()
        else:
            self._active.pop(number, None)
            self._left.pop(number, None)

    def active(self, now: float) -> dict[int, Fault]:
        """Return the active faults by number."""
        self._expire(now)
        return {number: fault for number, (fault, _) in self._active.items()}

    def strike(self, call: Call, now: float) -> list[Fault]:
        """Return the faults that affect this call, and count them."""
        if not self._active:
            return []
        self._expire(now)
        return [
            fault
            for number, (fault, _) in list(self._active.items())
            if fault.matches(call)
            and (fault.probability >= 1 or self._chance.random() < fault.probability)
            and self._use(number)
        ]

    def _use(self, number: int) -> bool:
        left = self._left.get(number)
        if left is not None:
            self._left[number] = left - 1
            if left <= 1:
                self.remove(number)
        return True

    def _expire(self, now: float) -> None:
        over = [n for n, (_, until) in self._active.items() if until and now >= until]
        for number in over:
            self.remove(number)
