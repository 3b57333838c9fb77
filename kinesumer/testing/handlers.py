"""Your handler, run by a simulated group of clients while everything goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.testing.campaign import Outcome, draw_run, play
from kinesumer.testing.schedule import parse_rates
from kinesumer.testing.simulation import Shape, Simulation, User
from kinesumer.testing.story import told

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesumer.model import Record

PLAIN = Shape()


def simulate_handler(
    handler: Callable[[Record], Awaitable[None]],
    *,
    faults: str = "all",
    minutes: float = 10.0,
    seed: int = 1,
    shape: Shape = PLAIN,
    data: Callable[[int], bytes] | None = None,
    restarts_after: tuple[type[Exception], ...] = (),
) -> Outcome:
    """Let simulated clients call a handler with each record, in virtual time.

    The handler runs in an event loop without real time: it may sleep, and must not do
    I/O. Each client is killed, stopped, cut off and restarted as ``faults`` says
    (``KIND[:PER_MINUTE[:SECONDS]],…``); what the handler is at stays undone, or goes on
    late. ``all`` is without ``seek`` here: operators may skip records. ``data`` makes
    the nth record's data. Clients start again after the errors in ``restarts_after``;
    any other error of the handler ends the simulation.

    Raises what the handler raised, and ViolationError where the library breaks one of
    its own promises. With ``PYTHONHASHSEED=0`` a seed repeats exactly.
    """
    rates = parse_rates(faults, shape.faults_per_minute)
    rates = tuple(r for r in rates if r.kind != "seek" or "seek" in faults)
    run = draw_run(shape, seed, minutes, rates)
    sim = Simulation(shape, seed, User(handler, data, restarts_after))
    outcome = Outcome(run)
    try:
        play(sim, outcome)
    except Exception as error:
        error.add_note("\n".join(["What happened before:", *told(sim.judge.events)]))
        raise
    return outcome
