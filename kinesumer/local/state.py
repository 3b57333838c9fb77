"""The state of the embedded AWS, protected by one lock."""

from __future__ import annotations

import random
import threading
import time
import uuid
from typing import TYPE_CHECKING

from kinesumer.local.dynamodb import DynamoDB
from kinesumer.local.faults import Faults
from kinesumer.local.identity import Identities
from kinesumer.local.kinesis.service import Kinesis
from kinesumer.local.request_log import RequestLog

if TYPE_CHECKING:
    from kinesumer.local.kinesis.limits import Limits


class ServiceClock:
    """The services' own time: it never goes back and can be put forward."""

    def __init__(self) -> None:
        self._ahead = time.time() - time.monotonic()
        self._stopped_at: float | None = None

    def now(self) -> float:
        """Return seconds since 1970, in whole milliseconds."""
        ticks = time.monotonic() if self._stopped_at is None else self._stopped_at
        return round(ticks + self._ahead, 3)

    def stop(self) -> None:
        """Stop the clock except for ``advance()``."""
        self._stopped_at = time.monotonic()

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        if seconds < 0:
            raise ValueError("seconds is negative: the clock can only advance")
        self._ahead += seconds


class ServiceState:
    """Accounts, streams, tables, faults and the journal.

    The server's event loop and a test's thread both use it: whoever touches anything
    but ``dynamodb`` and ``clock`` holds ``lock``.
    """

    def __init__(self, limits: Limits, seed: int) -> None:
        self.lock = threading.RLock()
        self.clock = ServiceClock()
        self.identities = Identities(lambda: uuid.uuid4().hex)
        self.faults = Faults(random.Random(seed))
        self.journal = RequestLog()
        self.kinesis = Kinesis(limits)
        self.dynamodb = DynamoDB()
