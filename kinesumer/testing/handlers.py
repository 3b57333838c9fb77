"""Test a handler in a simulated group of clients with faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kinesumer.consuming.assignment_callbacks import read_callbacks
from kinesumer.handlers.handler import Handle
from kinesumer.handlers.handler_function import read_function
from kinesumer.model.owned import OnAssigned, OnRevoked
from kinesumer.model.validation import require_error_types
from kinesumer.testing.simulation.invariants.base import ViolationError, format_events
from kinesumer.testing.simulation.run import Outcome, draw_run, parse_rates, play
from kinesumer.testing.simulation.scenarios import Scenario, UserCode
from kinesumer.testing.simulation.simulation import Simulation

PLAIN = Scenario()
# Prefixes of the names of the invariants that are checked after all faults have ended.
AT_REST = ("L", "I12", "I13")


def simulate_handler(
    handler: Handle[bytes],
    *,
    batch: bool | None = None,
    faults: str = "all",
    minutes: float = 10.0,
    seed: int = 1,
    scenario: Scenario = PLAIN,
    data: Callable[[int], bytes] | None = None,
    restarts_after: tuple[type[Exception], ...] = (),
    on_assigned: OnAssigned | None = None,
    on_revoked: OnRevoked | None = None,
) -> Outcome:
    """Let simulated clients call a handler with each record or batch, in virtual time.

    ``handler`` and ``batch`` have the same meaning as in ``client.run()``. All
    handlers, even those that aren't async, run in an event loop in virtual time. They
    may call ``asyncio.sleep()``, and must not do I/O. Clients are killed, stopped, cut
    off and restarted as ``faults`` specifies (``KIND[:PER_MINUTE[:SECONDS]],…``). A
    fault may end a call of the handler, or delay it. ``all`` doesn't include ``seek``
    here, because a seek may skip records. ``data`` returns the nth record's data.

    ``on_assigned`` and ``on_revoked`` have the same meaning as in ``client.run()``.
    They run in the event loop, too. A fault may delay a call, or end it.

    If the handler or a callback raises an error of a type in ``restarts_after``, the
    client starts again. With ``Scenario(concurrency=…)`` a handler's call is repeated
    instead, and finally the record becomes a dead letter. Any other error of the
    handler or a callback ends the simulation.

    Raises ConfigurationError if the handler is invalid, any error that the handler
    raised, and ViolationError if the library breaks one of its own promises. With
    ``PYTHONHASHSEED=0`` the same seed gives exactly the same run.
    """
    read = read_function(handler, batch)
    if read_callbacks(on_assigned, on_revoked, in_threads=False) is not None:
        scenario = replace(scenario, callbacks=True)
    if read.takes_batches:
        scenario = replace(scenario, batches=True)
    rates = parse_rates(faults, scenario.faults_per_minute)
    rates = tuple(r for r in rates if r.kind != "seek" or "seek" in faults)
    run = draw_run(scenario, seed, minutes, rates)
    restarts_after = require_error_types("restarts_after", restarts_after)
    user = UserCode(read, data, restarts_after, on_assigned, on_revoked)
    sim = Simulation(scenario, seed, user)
    outcome = Outcome(run)
    try:
        play(sim, outcome)
    except BaseException as error:
        lines = ["Events before the error:", *format_events(sim.checker.events)]
        events, late = "\n".join(lines), sim.late_failure
        broken = error.predicate if isinstance(error, ViolationError) else ""
        if late is not None and broken.startswith(AT_REST):
            late.add_note(
                "The error also occurred after all faults, so the group never settled."
            )
            late.add_note(events)
            raise late from error
        error.add_note(events)
        raise
    return outcome
