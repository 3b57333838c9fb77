"""A wall clock that jumps, as an operator's or a broken time service's does.

Nothing but the wall clock: leases and timers run on other clocks, in life as here.
"""

from __future__ import annotations

import datetime as module
import time
from typing import Any

_Real = module.datetime
_real_time = time.time
_ahead = 0.0


class _AnyDatetime(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Real)


class _Datetime(_Real, metaclass=_AnyDatetime):
    @classmethod
    def now(cls, tz: module.tzinfo | None = None) -> Any:
        return _Real.now(tz) + module.timedelta(seconds=_ahead)

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now(module.UTC).replace(tzinfo=None)


def install() -> None:
    """Make this process's wall clock one that jumps; before others import it."""
    time.time = lambda: _real_time() + _ahead
    module.datetime = _Datetime  # type: ignore[misc]


def jump(seconds: float) -> None:
    """Put the wall clock that much ahead of the true time, or behind it."""
    global _ahead
    _ahead = seconds
