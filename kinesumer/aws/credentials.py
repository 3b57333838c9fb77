"""Hold the keys that sign calls, and renew them before they expire.

A call never waits for a renewal while there are keys: it compares the time, and a task
renews the keys. If that fails, the keys in use stay in use, and the task tries again.
Only AWS decides whether keys are still valid, because the local clock may be wrong.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from contextvars import Context
from typing import Any, NamedTuple, Protocol

from botocore.exceptions import ClientError, CredentialRetrievalError

from kinesumer.aws.errors import (
    KEY_KINDS,
    AwsFailure,
    KeysMissingError,
    Kind,
    cause_of,
    describe,
    failure_of,
)
from kinesumer.aws.key_trouble import WAIT_SECONDS, KeyTrouble
from kinesumer.core.backoff import REPAIR_BACKOFF, Backoff
from kinesumer.errors import KinesumerError
from kinesumer.runtime.tasks import cancel_and_wait, timeout
from kinesumer.runtime.text import SECRETS

# Keys are renewed this long before they expire, or after half of their lifetime if
# that is later. Botocore's own credentials do the same.
MAX_EARLY_SECONDS = 15 * 60.0
# The longest wait if the keys don't expire: reading a file again costs little.
MAX_FILE_PAUSE_SECONDS = 5.0
# A source that has not answered after this time fails, e.g. a process that hangs. AWS's
# SDKs wait as long for an answer of STS.
FETCH_SECONDS = 60.0
# How long a thread waits for the other event loop, which user code may block.
# An eighth of WAIT_SECONDS: the thread sends heartbeats, which must not be late.
BORROW_SECONDS = 0.25
# The name of a value in a call's context: the id of the keys that sign the call.
CONTEXT = "kinesumer-key-id"


class FrozenCredentials(NamedTuple):
    """An immutable set of keys, with the attributes that botocore's signers need."""

    access_key: str
    secret_key: str
    token: str | None = None
    account_id: str | None = None

    def __repr__(self) -> str:
        """Omit secrets, since error reports may contain local variables."""
        return f"Frozen(access_key={self.access_key!r}, …)"


class Keys(NamedTuple):
    """Keys, and for how many seconds they stay valid: None if that is unknown."""

    frozen: FrozenCredentials
    lifetime: float | None = math.inf


class KeySource(Protocol):
    """A source of keys: a session, or a role."""

    method: str
    """The kind of source, as botocore names it in the user agent."""

    async def fetch(self) -> Keys:
        """Return the keys that the source has now, and raise any error."""
        ...


class Keyring:
    """The keys of one source, for all calls of an event loop.

    ``now`` is any clock in seconds. Other threads may read the attributes.
    """

    keys: FrozenCredentials  # the first renewal sets other ones

    def __init__(
        self, source: KeySource, trouble: KeyTrouble, now: Callable[[], float]
    ) -> None:
        self.method: str = source.method
        self.trouble = trouble
        self.keys = FrozenCredentials("", "")
        self.renew_at = -math.inf  # when the keys are due; -inf if there are none
        self._source, self._now = source, now
        self._expires_at = math.inf
        self._longest_pause = REPAIR_BACKOFF.longest_seconds
        self._has_keys = False
        self._ask_at = -math.inf
        self._failures = 0
        self._failure: Exception | None = None
        self._renewal: asyncio.Task[None] | None = None

    @property
    def are_renewed(self) -> bool:
        """True if the source renews the keys by itself, before they expire."""
        return self.renew_at != math.inf

    @property
    def key_id(self) -> str:
        """The id of the keys in use, or an empty text if there are none yet."""
        return self.keys.access_key

    async def get_frozen_credentials(self) -> FrozenCredentials:
        """Return the keys in use. Wait for the source only if there are none yet."""
        if self._now() >= self.renew_at:
            if self._has_keys:
                self.renew()
            else:
                await self._first_keys()
        return self.keys

    async def load(self) -> None:
        """Get the first keys, and raise the source's error if that fails."""
        if not self._has_keys:
            await asyncio.shield(self.renew())
        if self._failure is not None and not self._has_keys:
            # Clear the traceback, which would grow each time.
            raise self._failure.with_traceback(None)

    def renew(self) -> asyncio.Task[None]:
        """Begin to renew the keys, unless that has begun, and return the task."""
        if self._renewal is None or self._renewal.done():
            # Without a context of its own, the task would belong to a call's trace.
            self._renewal = asyncio.get_running_loop().create_task(
                self._renew(), context=Context()
            )
        return self._renewal

    async def replace(self, refused: str) -> bool:
        """Ask the source for other keys. Return whether there are others now."""
        if self.key_id == refused and self._now() >= self._ask_at:
            await asyncio.wait([self.renew()], timeout=WAIT_SECONDS)
        return self.key_id != refused

    async def close(self) -> None:
        """End a renewal that is under way."""
        if self._renewal is not None:
            await cancel_and_wait(self._renewal)

    async def _first_keys(self) -> None:
        try:
            await self.load()
        except KinesumerError:
            raise
        except Exception as error:
            raise KeysMissingError(cause=cause_of(error)) from error

    async def _renew(self) -> None:
        try:
            async with timeout(FETCH_SECONDS):
                found = self._checked(await self._source.fetch())
        except Exception as error:
            self._failure = error
            self._put_off()
            # Without keys, the caller reports the error.
            if self._has_keys:
                self.trouble.renewal_failed(error, self._expires_at - self._now())
        else:
            self._failure = None
            self._take(found)

    def _checked(self, found: Keys) -> Keys:
        """Raise an error for keys that have expired, while those in use are valid."""
        left = math.inf if found.lifetime is None else found.lifetime
        if left <= 0 and self._has_keys and self._now() < self._expires_at:
            raise CredentialRetrievalError(
                provider=self._source.method,
                error_msg=f"the keys that it gives expired {-left:.0f} s ago",
            )
        return found

    def _take(self, found: Keys) -> None:
        now, lifetime = self._now(), found.lifetime
        if lifetime is None:
            self.renew_at, self._expires_at = (
                now + REPAIR_BACKOFF.first_seconds,
                math.inf,
            )
            self._longest_pause = REPAIR_BACKOFF.first_seconds
        else:
            self._expires_at = now + lifetime
            self._longest_pause = REPAIR_BACKOFF.longest_seconds
            if lifetime == math.inf:
                self._longest_pause = MAX_FILE_PAUSE_SECONDS
            elif lifetime > 0:  # otherwise the local clock is wrong
                self._longest_pause = min(lifetime / 10, REPAIR_BACKOFF.longest_seconds)
            early = min(lifetime / 2, MAX_EARLY_SECONDS)
            self.renew_at = max(self._expires_at - early, now + self._longest_pause)
        is_new = not self._has_keys or found.frozen != self.keys
        if is_new:
            SECRETS.add(found.frozen.secret_key)
            SECRETS.add(found.frozen.token)
            self.keys, self._has_keys, self._failures = found.frozen, True, 0
        else:
            self._put_off()
        self.trouble.fetched(is_new=is_new)

    def _put_off(self) -> None:
        """Wait before the source is asked again, because it has no other keys."""
        self._failures += 1
        first = min(REPAIR_BACKOFF.first_seconds, self._longest_pause)
        backoff = Backoff(first, self._longest_pause)
        pause = backoff.wait_seconds(self._failures, random.random())
        self._ask_at = self._now() + pause
        if self._has_keys:
            self.renew_at = max(self.renew_at, self._ask_at)


class BorrowedKeys:
    """The keys of another event loop, for a thread that must not wait for that loop.

    Only the other loop renews the keys. While it is busy, the keys in use stay in use.
    They stay valid for longer than any stall of a loop that the group tolerates.
    """

    method = "loaned"

    def __init__(
        self,
        owner: Keyring,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float],
    ) -> None:
        self.trouble = owner.trouble
        self._owner, self._loop, self._now = owner, loop, now

    @property
    def are_renewed(self) -> bool:
        """True if the source renews the keys by itself, before they expire."""
        return self._owner.are_renewed

    @property
    def key_id(self) -> str:
        """The id of the keys in use."""
        return self._owner.key_id

    async def get_frozen_credentials(self) -> FrozenCredentials:
        """Return the keys in use."""
        if self._now() >= self._owner.renew_at and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._owner.renew)
        return self._owner.keys

    async def replace(self, refused: str) -> bool:
        """Let the other loop ask for other keys, unless it is blocked."""
        if self.key_id == refused and not self._loop.is_closed():
            asked = asyncio.run_coroutine_threadsafe(
                self._owner.replace(refused), self._loop
            )
            answer = asyncio.wrap_future(asked)
            # If this takes longer, nobody waits for the answer.
            answer.add_done_callback(_retrieve_error)
            await asyncio.wait([answer], timeout=BORROW_SECONDS)
        return self.key_id != refused


def _retrieve_error(answer: asyncio.Future[bool]) -> None:
    """Retrieve a late error, so that asyncio doesn't log it."""
    if not answer.cancelled():
        answer.exception()


# The keys of a client. The client asks for them at each request.
SigningKeys = Keyring | BorrowedKeys


class KeyUse:
    """The use of keys by the calls of one client, to one service and region.

    Keys that AWS has never accepted are a mistake, which the user must correct. Keys
    that it had accepted before were replaced, or have expired: their source may have
    others.

    With ``trusted``, the keys are those of a program that runs already. So they count
    as accepted.
    """

    def __init__(self, keys: SigningKeys, *, trusted: bool = False) -> None:
        self.works = False  # whether AWS accepted the last keys
        self._has_worked = trusted
        self._keys = keys

    def accept(self) -> None:
        """Note that AWS has accepted the keys. Call it only if ``works`` is false."""
        self.works = self._has_worked = True
        self._keys.trouble.accepted(self)

    async def replaces(self, error: ClientError, key_id: str) -> bool:
        """Return whether to repeat a failed call, since there are other keys by now.

        ``key_id`` is the id of the keys with which the call was signed.
        """
        is_refused = failure_of(error).kind in KEY_KINDS
        return is_refused and await self._keys.replace(key_id)

    def may_recover(self, fault: AwsFailure) -> bool:
        """Return whether a call that failed because of its keys may succeed later."""
        if fault.kind is Kind.KEYS_MISSING:
            return True
        is_renewed = fault.kind is Kind.TOKEN_EXPIRED and self._keys.are_renewed
        if not self._has_worked and not is_renewed:
            return False
        self.works = False
        self._keys.trouble.refused(self, describe(fault))
        return True

    def state(self) -> str:
        """Return what is wrong with the keys, in one line."""
        return self._keys.trouble.text

    def watch(self, client: Any) -> None:
        """Let a client of aiobotocore repeat calls of which AWS refuses the keys."""
        events = client.meta.events
        events.register("before-call", self._before_call)
        events.register("needs-retry", self._after_attempt)

    def _before_call(self, context: dict[str, Any], **_: object) -> None:
        """Note which keys sign a call: a hook of botocore."""
        context[CONTEXT] = self._keys.key_id

    async def _after_attempt(
        self,
        response: Any,
        operation: Any,
        attempts: int,
        request_dict: Any,
        **_: object,
    ) -> float | None:
        """Return 0 to repeat a call at once, or None: a hook of botocore."""
        if response is None:
            return None
        http, parsed = response
        if http.status_code < 300:
            if not self.works:
                self.accept()
            return None
        key_id = request_dict["context"][CONTEXT]
        error = ClientError(parsed, operation.name)
        return 0.0 if attempts == 1 and await self.replaces(error, key_id) else None
