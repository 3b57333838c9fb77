"""Create the context in which commands change rows: a client without a session."""

from __future__ import annotations

import asyncio
import random
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kinesumer.config import Config
from kinesumer.coordination.paced_store import PacedStore
from kinesumer.coordination.startup_checks import find_live_members
from kinesumer.errors import ConfigurationError, GroupBusyError, KinesumerError
from kinesumer.model.validation import validate_name
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import FailureLog, logger
from kinesumer.runtime.incidents import IncidentLog
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.model.rows import LivenessRow
    from kinesumer.ports import StateStore

OPERATOR = "operator"
# A person waits for a command, so it fails if AWS doesn't answer within this time.
RETRY_SECONDS = 30.0


def operator_context(app: str, store: StateStore) -> ClientContext:
    """Return the context of a command. Raises ConfigurationError for an invalid app."""
    clock, draws = SystemClock(), random.Random()
    return ClientContext(
        app=validate_name("app", app),
        client_id=OPERATOR,
        config=Config(),
        store=PacedStore(store, clock, draws),
        clock=clock,
        random=draws,
        new_id=lambda: uuid.uuid4().hex,
        failure_log=FailureLog(clock),
        incidents=IncidentLog(clock),
        retry_seconds=RETRY_SECONDS,
    )


@contextmanager
def report_partial_failure(advice: str) -> Iterator[None]:
    """Add ``advice`` to an error or interruption that may leave some writes undone."""
    try:
        yield
    except asyncio.CancelledError:
        logger.warning("interrupted: %s", advice)
        raise
    except ConfigurationError:
        raise
    except KinesumerError as error:
        raise KinesumerError(f"{error}; {advice}") from error


async def require_no_clients(context: ClientContext) -> None:
    """Raise GroupBusyError if clients or a Spark query consume under the app.

    Marks crashed clients dead, after waiting until their leases expire (8 s).
    """
    latest: list[LivenessRow] = []

    async def members() -> list[LivenessRow]:
        partition = rows.member_key(context.app, "").pk
        latest[:] = map(rows.read_liveness, await context.query(partition))
        return latest

    if living := await find_live_members(context, members):
        # The check ends at the first heartbeat, so the other members may be alive too.
        rest = [p.client_id for p in latest if not p.dead and p not in living]
        names = ", ".join(member.client_id for member in living)
        names += f", and perhaps {', '.join(rest)}" if rest else ""
        raise GroupBusyError(
            "clients",
            f"clients of app {context.app!r} are alive: {escape_unprintable(names)}; "
            "stop them first",
        )
