"""Violations, and the checker as its parts see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kinesumer.simulation.invariants.leases import SessionLeases
    from kinesumer.simulation.machine import Machine


class ViolationError(AssertionError):
    """An invariant of the protocol doesn't hold."""

    def __init__(self, predicate: str, message: str, at: float) -> None:
        self.predicate = predicate
        super().__init__(f"{predicate} at {at:.3f} s: {message}")


class Checker(Protocol):
    """The checker that a part reports to, as far as parts use it."""

    leases: SessionLeases
    dead: dict[str, float]
    """The sessions that are marked dead, and since when."""
    writer: Machine | None
    """The machine whose write is being applied."""

    @property
    def now(self) -> float:
        """The seconds since the simulation began."""

    def fail(self, predicate: str, message: str) -> None:
        """Report a violation. It ends the run."""
