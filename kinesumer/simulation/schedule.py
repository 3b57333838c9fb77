"""The schedule of faults, drawn from a seed or read from a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesumer.simulation.final_phases import FATAL
from kinesumer.simulation.limit_faults import KINDS
from kinesumer.simulation.scenarios import FAULTS_PER_MINUTE

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

MAX_FAULT_SECONDS = 60.0
"""Longest duration of a fault; most are much shorter."""
ALL = (*KINDS, *FATAL)


@dataclass(frozen=True)
class Fault:
    """A fault at a time."""

    at: float
    """Seconds since the simulation's start."""
    kind: str
    duration_seconds: float
    draw: int
    """Seed of its own random numbers, such as the process that it hits."""


@dataclass(frozen=True)
class Rate:
    """How often a kind of fault happens, and its longest duration."""

    kind: str
    per_minute: float
    seconds: float = MAX_FAULT_SECONDS


def parse_rates(text: str, per_minute: float = FAULTS_PER_MINUTE) -> tuple[Rate, ...]:
    """Read ``KIND[:PER_MINUTE[:SECONDS]],…``; ``all`` is every kind, ``none`` is none.

    Kinds without a rate of their own share ``per_minute`` equally, or what ``all`` has
    as its rate. Raises ValueError.
    """
    found: dict[str, tuple[float | None, float]] = {}
    for part in text.split(","):
        kind, *figures = part.split(":")
        rate, seconds = _figures(part, figures)
        if kind == "all":
            per_minute = rate or per_minute
            found.update((name, (None, seconds)) for name in ALL)
        elif kind != "none":
            found[kind] = rate, seconds
    unknown = sorted(found.keys() - {*ALL})
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}; known are all, none, {', '.join(sorted(ALL))}"
        )
    sharing = [k for k, (own, _) in found.items() if own is None and k not in FATAL]
    each = per_minute / max(1, len(sharing))
    return tuple(
        Rate(kind, each if own is None else own, seconds)
        for kind, (own, seconds) in found.items()
    )


def _figures(part: str, figures: list[str]) -> tuple[float | None, float]:
    if len(figures) > 2:
        raise ValueError(f"{part}: write KIND:PER_MINUTE:SECONDS")
    try:
        values = [float(figure) if figure else None for figure in figures]
    except ValueError:
        raise ValueError(f"{part}: rate and length are numbers") from None
    if any(value is not None and not value > 0 for value in values):
        raise ValueError(f"{part}: rate and length must be greater than 0")
    rate, seconds = [*values, None, None][:2]
    return rate, MAX_FAULT_SECONDS if seconds is None else seconds


def draw_faults(
    rates: Iterable[Rate], seconds: float, random: random.Random
) -> tuple[Fault, ...]:
    """Draw the faults of a time span; all of them end within it."""
    rates = [rate for rate in rates if rate.kind not in FATAL]
    weights = [rate.per_minute for rate in rates]
    if not rates:
        return ()
    mean, at = 60 / sum(weights), 0.0
    faults: list[Fault] = []
    while (at := at + 2 * mean * random.random()) < seconds:
        (rate,) = random.choices(rates, weights)
        # Most faults take a few seconds, some a minute.
        duration_seconds = min(rate.seconds * random.random() ** 2, seconds - at)
        draw = random.getrandbits(32)
        faults.append(Fault(round(at, 3), rate.kind, round(duration_seconds, 3), draw))
    return tuple(faults)
