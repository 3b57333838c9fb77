"""Your handler, run by a simulated group of clients while everything goes wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kinesumer.handlers.signature import read_handler
from kinesumer.model.validation import require_error_types
from kinesumer.simulation.event_log import told
from kinesumer.simulation.invariants.checker import ViolationError
from kinesumer.simulation.run import Outcome, draw_run, play
from kinesumer.simulation.schedule import parse_rates
from kinesumer.simulation.world import Shape, Simulation, User

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.client import Handle

PLAIN = Shape()
AT_REST = ("L", "I12", "I13")
"""How the predicates begin that are judged when all faults are over."""


def simulate_handler(
    handler: Handle,
    *,
    batch: bool | None = None,
    faults: str = "all",
    minutes: float = 10.0,
    seed: int = 1,
    shape: Shape = PLAIN,
    data: Callable[[int], bytes] | None = None,
    restarts_after: tuple[type[Exception], ...] = (),
) -> Outcome:
    """Let simulated clients call a handler with each record or batch, in virtual time.

    Handlers are what ``client.run()`` takes, and ``batch`` is as there. They run in an
    event loop without real time, plain functions too: they may sleep by asyncio, and
    must not do I/O. Each client is killed, stopped, cut off and restarted as ``faults``
    says (``KIND[:PER_MINUTE[:SECONDS]],…``); what the handler is at stays undone, or
    goes on late. ``all`` is without ``seek`` here: operators may skip records. ``data``
    makes the nth record's data. Clients start again after the errors in
    ``restarts_after``; with ``Shape(concurrency=…)`` these are tried again instead, and
    then the record becomes a dead letter. Any other error of the handler ends the
    simulation.

    Raises ConfigurationError for what isn't a handler, what the handler raised, and
    ViolationError where the library breaks one of its own promises. With
    ``PYTHONHASHSEED=0`` a seed repeats exactly.
    """
    read = read_handler(handler, batch)
    if read.takes_batches:
        shape = replace(shape, batches=True)
    rates = parse_rates(faults, shape.faults_per_minute)
    rates = tuple(r for r in rates if r.kind != "seek" or "seek" in faults)
    run = draw_run(shape, seed, minutes, rates)
    restarts_after = require_error_types("restarts_after", restarts_after)
    sim = Simulation(shape, seed, User(read, data, restarts_after))
    outcome = Outcome(run)
    try:
        play(sim, outcome)
    except BaseException as error:
        story = "\n".join(["What happened before:", *told(sim.judge.events)])
        late = sim.late_failure
        if late is not None and _is_at_rest(error):
            late.add_note("It came also when all faults were over, so nothing settled.")
            late.add_note(story)
            raise late from error
        error.add_note(story)
        raise
    return outcome


def _is_at_rest(error: BaseException) -> bool:
    return isinstance(error, ViolationError) and error.predicate.startswith(AT_REST)
