"""Repeat a call of a service while it fails for a reason that passes."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar, TypeVarTuple

from kinesumer.core.backoff import CALL_BACKOFF, Backoff
from kinesumer.errors import SourceUnavailableError, TransientError

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class Retries(NamedTuple):
    """The errors after which a call is repeated, and the limits of the repetition.

    With ``waits_for_credentials``, the attempts and the time without valid credentials
    don't count.
    """

    errors: tuple[type[TransientError], ...] = (SourceUnavailableError,)
    max_attempts: float = math.inf
    max_seconds: float = math.inf
    backoff: Backoff = CALL_BACKOFF
    waits_for_credentials: bool = False

    async def call(
        self,
        request: Callable[[*Arguments], Awaitable[T]],
        *args: *Arguments,
        on_failure: Callable[[TransientError], object] | None = None,
    ) -> T:
        """Return the result of ``request``. Raise its last error at one of the limits.

        ``on_failure`` receives the error of each failed attempt.
        """
        now = asyncio.get_running_loop().time
        began, failures = now(), 0
        while True:
            try:
                return await request(*args)
            except self.errors as error:
                if on_failure is not None:
                    on_failure(error)
                if self.waits_for_credentials and error.lacks_credentials:
                    began, wait = now(), self.backoff.longest_seconds
                else:
                    failures += 1
                    wait = self.backoff.wait_seconds(failures, random.random())
                    elapsed = now() + wait - began
                    if failures >= self.max_attempts or elapsed > self.max_seconds:
                        raise
            await asyncio.sleep(wait)


# For calls that a person or a program waits for: some ten seconds.
CALL_RETRIES = Retries(max_attempts=10)
