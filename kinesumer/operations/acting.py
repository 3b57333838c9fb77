"""What commands that change rows act as: an engine's context, without a session."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING

from kinesumer.client import checked_name
from kinesumer.clock import SystemClock
from kinesumer.config import Config
from kinesumer.context import Context, Health

if TYPE_CHECKING:
    from kinesumer.ports import StateStore

OPERATOR = "operator"


def acting(app: str, store: StateStore) -> Context:
    """Return the context of a command. Raises ConfigurationError for a bad name."""
    clock = SystemClock()
    return Context(
        app=checked_name("app", app),
        client_id=OPERATOR,
        config=Config(),
        store=store,
        clock=clock,
        random=random.Random(),
        new_id=lambda: uuid.uuid4().hex,
        health=Health(clock),
    )
