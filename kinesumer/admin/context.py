"""What commands that change rows act as: an engine's context, without a session."""

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
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.model.rows import LivenessRow
    from kinesumer.ports import StateStore

OPERATOR = "operator"
RETRY_SECONDS = 30.0
"""A command ends when AWS hasn't answered for so long; somebody waits for it."""


def operator_context(app: str, store: StateStore) -> ClientContext:
    """Return the context of a command. Raises ConfigurationError for a bad name."""
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
        retry_seconds=RETRY_SECONDS,
    )


@contextmanager
def report_partial_failure(left: str) -> Iterator[None]:
    """Have a fault, or Ctrl-C, between several writes tell what is left.

    Raises KinesumerError.
    """
    try:
        yield
    except asyncio.CancelledError:
        logger.warning("interrupted: %s", left)
        raise
    except ConfigurationError:
        raise
    except KinesumerError as error:
        raise KinesumerError(f"{error}; {left}") from error


async def require_no_clients(context: ClientContext) -> None:
    """Raise GroupBusyError while clients or a query consume under the app.

    Those that died without a word are marked dead, which takes their lease (8 s).
    """

    found: list[LivenessRow] = []

    async def members() -> list[LivenessRow]:
        partition = rows.member_key(context.app, "").pk
        answer = await context.until_available(
            lambda: context.store.query(partition, consistent=True)
        )
        found[:] = [rows.read_liveness(row) for row in answer]
        return found

    if living := await find_live_members(context, members):
        # The first heartbeat ends the watch: the others may live as well.
        rest = [p.client_id for p in found if not p.dead and p not in living]
        names = ", ".join(pulse.client_id for pulse in living)
        names += f", and perhaps {', '.join(rest)}" if rest else ""
        raise GroupBusyError(
            "clients",
            f"clients of app {context.app!r} are alive: {escape_unprintable(names)}; "
            "stop them "
            "first",
        )
