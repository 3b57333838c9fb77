"""Test a handler in a simulated group of clients with faults."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kinesumer.handlers.signature import read_handler
from kinesumer.model.validation import require_error_types
from kinesumer.simulation.event_log import format_events
from kinesumer.simulation.invariants.base import ViolationError
from kinesumer.simulation.run import Outcome, draw_run, play
from kinesumer.simulation.scenarios import Scenario
from kinesumer.simulation.schedule import parse_rates
from kinesumer.simulation.simulation import Simulation
from kinesumer.simulation.world import UserCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.client import Handle

PLAIN = Scenario()
AT_REST = ("L", "I12", "I13")
"""Prefixes of the predicates that are checked after the faults."""


def simulate_handler(
    handler: Handle,
    *,
    batch: bool | None = None,
    faults: str = "all",
    minutes: float = 10.0,
    seed: int = 1,
    scenario: Scenario = PLAIN,
    data: Callable[[int], bytes] | None = None,
    restarts_after: tuple[type[Exception], ...] = (),
) -> Outcome:
    """Let simulated clients call a handler with each record or batch, in virtual time.

    Handlers are what ``client.run()`` takes, and ``batch`` is as there. They run in an
    event loop without real time, plain functions too: they may sleep by asyncio, and
    must not do I/O. Each client is killed, stopped, cut off and restarted as ``faults``
    says (``KIND[:PER_MINUTE[:SECONDS]],…``). A fault may end a call of the handler, or
    delay it. ``all`` excludes ``seek`` here, because operators may skip records.
    ``data`` makes the nth record's data. A client starts again after an error in
    ``restarts_after``. With ``Scenario(concurrency=…)`` the call is tried again
    instead, and then the record becomes a dead letter. Any other error of the handler
    ends the simulation.

    Raises ConfigurationError for what isn't a handler, what the handler raised, and
    ViolationError where the library breaks one of its own promises. With
    ``PYTHONHASHSEED=0`` a seed repeats exactly.
    """
    read = read_handler(handler, batch)
    if read.takes_batches:
        scenario = replace(scenario, batches=True)
    rates = parse_rates(faults, scenario.faults_per_minute)
    rates = tuple(r for r in rates if r.kind != "seek" or "seek" in faults)
    run = draw_run(scenario, seed, minutes, rates)
    restarts_after = require_error_types("restarts_after", restarts_after)
    sim = Simulation(scenario, seed, UserCode(read, data, restarts_after))
    outcome = Outcome(run)
    try:
        play(sim, outcome)
    except BaseException as error:
        events = "\n".join(
            ["Events before the error:", *format_events(sim.checker.events)]
        )
        late = sim.late_failure
        if late is not None and _is_at_rest(error):
            late.add_note(
                "The error also occurred after all faults, so the group never settled."
            )
            late.add_note(events)
            raise late from error
        error.add_note(events)
        raise
    return outcome


def _is_at_rest(error: BaseException) -> bool:
    return isinstance(error, ViolationError) and error.predicate.startswith(AT_REST)
