"""The schedule of a run's faults, which is drawn at random by the rates of faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesumer.testing.simulation.faults import KINDS
from kinesumer.testing.simulation.final_phases import FATAL
from kinesumer.testing.simulation.scenarios import FAULTS_PER_MINUTE
from kinesumer.testing.simulation.service_faults import RARE_KINDS, SERVICE_KINDS
from kinesumer.testing.simulation.subscription_faults import SUBSCRIPTION_KINDS

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

# Longest duration of a fault; most are much shorter.
MAX_FAULT_SECONDS = 60.0
ALL = (*KINDS, *SERVICE_KINDS, *FATAL)
KNOWN = {*ALL, *SUBSCRIPTION_KINDS, *RARE_KINDS}


@dataclass(frozen=True)
class Fault:
    """A fault to inject at a given time."""

    # Seconds since the simulation's start.
    at: float
    kind: str
    duration_seconds: float
    # Seed of the fault's random choices, such as the affected process.
    draw: int


@dataclass(frozen=True)
class Rate:
    """The rate and the maximum duration of a kind of fault."""

    kind: str
    per_minute: float
    seconds: float = MAX_FAULT_SECONDS


def parse_rates(text: str, per_minute: float = FAULTS_PER_MINUTE) -> tuple[Rate, ...]:
    """Read ``KIND[:PER_MINUTE[:SECONDS]],…``; ``none`` is no kind.

    ``all`` is every kind but ``poison``, ``auto`` and those of fan-out,
    ``subscriptions``.
    Kinds without their own rate share the rate of ``all`` equally. The default rate of
    ``all`` is ``per_minute``. Raises ValueError.
    """
    kinds: dict[str, tuple[float | None, float]] = {}
    for part in text.split(","):
        kind, *figures = part.split(":")
        rate, seconds = _figures(part, figures)
        if kind == "all":
            per_minute = rate or per_minute
            kinds.update((name, (None, seconds)) for name in ALL)
        elif kind == "subscriptions":
            kinds.update((name, (rate, seconds)) for name in SUBSCRIPTION_KINDS)
        elif kind != "none":
            kinds[kind] = rate, seconds
    unknown = sorted(kinds.keys() - KNOWN)
    if unknown:
        raise ValueError(
            f"unknown kinds of faults: {', '.join(unknown)}; "
            f"known are all, subscriptions, none, {', '.join(sorted(KNOWN))}"
        )
    sharing = [k for k, (own, _) in kinds.items() if own is None and k not in FATAL]
    each = per_minute / max(1, len(sharing))
    return tuple(
        Rate(kind, each if own is None else own, seconds)
        for kind, (own, seconds) in kinds.items()
    )


def _figures(part: str, figures: list[str]) -> tuple[float | None, float]:
    if len(figures) > 2:
        raise ValueError(f"{part}: write at most KIND:PER_MINUTE:SECONDS")
    try:
        values = [float(figure) if figure else None for figure in figures]
    except ValueError:
        raise ValueError(f"{part}: rate and length must be numbers") from None
    if any(value is not None and not value > 0 for value in values):
        raise ValueError(f"{part}: rate and length must be greater than 0")
    rate, seconds = [*values, None, None][:2]
    return rate, MAX_FAULT_SECONDS if seconds is None else seconds


def draw_faults(
    rates: Iterable[Rate], seconds: float, random: random.Random
) -> tuple[Fault, ...]:
    """Draw faults that begin and end within the first ``seconds`` of a run."""
    rates = [rate for rate in rates if rate.kind not in FATAL]
    weights = [rate.per_minute for rate in rates]
    if not rates:
        return ()
    mean, at = 60 / sum(weights), 0.0
    faults: list[Fault] = []
    while (at := at + 2 * mean * random.random()) < seconds:
        (rate,) = random.choices(rates, weights)
        # The square makes most faults short, and only some as long as possible.
        duration_seconds = min(rate.seconds * random.random() ** 2, seconds - at)
        draw = random.getrandbits(32)
        faults.append(Fault(round(at, 3), rate.kind, round(duration_seconds, 3), draw))
    return tuple(faults)
