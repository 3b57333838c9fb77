"""Renew a role's credentials, and borrow credentials from another event loop."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aiobotocore.credentials import AioCredentials

from kinesumer.aws.errors import call_errors
from kinesumer.errors import KinesumerError, SourceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future
    from contextlib import AbstractAsyncContextManager

    from botocore.credentials import ReadOnlyCredentials

LOGGER = logging.getLogger("kinesumer")

# Keys are renewed this long before they expire, or after half of their lifetime if
# that is later.
MAX_EARLY_SECONDS = 15 * 60.0
# A failed renewal is retried after this time, or after a tenth of the keys' lifetime
# if that is shorter.
MAX_PAUSE_SECONDS = 30.0
# If the local clock is off by more than this, the service's time is used.
DATE_SECONDS = 2.0
# How often a borrower asks the other event loop for the credentials.
REQUEST_SECONDS = 1.0
# How long a borrower waits for the other event loop's answer. After that, it uses the
# last credentials again.
BORROW_SECONDS = 0.25


class FrozenCredentials(NamedTuple):
    """An immutable set of keys, with the attributes that botocore's signers need."""

    access_key: str
    secret_key: str
    token: str | None = None
    account_id: str | None = None

    def __repr__(self) -> str:
        """Omit secrets, since error reports may contain local variables."""
        return f"Frozen(access_key={self.access_key!r}, …)"


# The role's keys that the running task received last.
_TASK_KEYS: ContextVar[FrozenCredentials | None] = ContextVar("used", default=None)


class Credentials(Protocol):
    """Credentials of a client. The client asks for the keys at each request."""

    async def get_frozen_credentials(
        self,
    ) -> FrozenCredentials | ReadOnlyCredentials: ...


class Role(NamedTuple):
    """A role to assume, with the arguments of AssumeRole."""

    arn: str
    session_name: str
    external_id: str | None = None

    @property
    def account(self) -> str:
        """The account that the role belongs to."""
        return self.arn.split(":")[4]

    def __repr__(self) -> str:
        """Omit the external id, since error reports may contain local variables."""
        return f"Role(arn={self.arn!r}, session_name={self.session_name!r}, …)"


class RoleCredentials(AioCredentials):  # type: ignore[misc]
    """A role's credentials, renewed well before they expire.

    While one call renews the keys, other calls use the old keys. If the old keys have
    expired, these calls wait for the renewal. ``now`` is any clock in seconds.
    """

    def __init__(
        self,
        role: Role,
        sts: Callable[[], AbstractAsyncContextManager[Any]],
        now: Callable[[], float],
    ) -> None:
        super().__init__("", "", method="assume-role")
        self._role, self._sts, self._now = role, sts, now
        self._frozen: FrozenCredentials | None = None
        self._renew_at = self._expires_at = 0.0
        self._pause = 0.0
        self._attempts = 0
        self._failure: KinesumerError | None = None
        self._lock = asyncio.Lock()

    async def get_frozen_credentials(self) -> FrozenCredentials:
        """Return valid keys, and renew them first if they are due."""
        used = await self._valid()
        _TASK_KEYS.set(used)
        return used

    async def _valid(self) -> FrozenCredentials:
        frozen = self._frozen
        now = self._now()
        if frozen is not None and (now < self._renew_at or self._lock.locked()):
            # The keys aren't due for renewal, or another call is renewing them.
            if now < self._expires_at:
                return frozen
        attempts = self._attempts
        async with self._lock:
            if self._failure is not None and self._attempts != attempts:
                # Another call failed to renew the keys while this call waited. Raise
                # the same error, but clear its traceback, which would grow each time.
                raise self._failure.with_traceback(None)
            if self._frozen is None or self._now() >= self._renew_at:
                try:
                    self._frozen = await self._renewed()
                finally:
                    self._attempts += 1
            return self._frozen

    async def get_account_id(self) -> str | None:
        """Return the account that the role belongs to."""
        return self._role.account

    def forget(self) -> bool:
        """Discard the running task's keys, since AWS said that they have expired.

        If another task has already renewed the keys, keep the new keys. Return True,
        since a retry gets new keys in both cases.
        """
        if _TASK_KEYS.get() is self._frozen:
            self._frozen = None
        return True

    async def _renewed(self) -> FrozenCredentials:
        self._failure = None
        role = self._role
        arguments = {"RoleArn": role.arn, "RoleSessionName": role.session_name}
        if role.external_id is not None:
            arguments["ExternalId"] = role.external_id
        try:
            with call_errors(
                "sts:AssumeRole",
                role.arn,
                SourceUnavailableError,
                denial_advice=_denial_advice(role),
            ):
                async with self._sts() as sts:
                    answer = await sts.assume_role(**arguments)
                lifetime, keys = _lifetime(answer), _keys(answer, role)
        except KinesumerError as error:
            if self._frozen is None or self._now() >= self._expires_at:
                self._failure = error
                raise
            self._renew_at = self._now() + self._pause
            LOGGER.warning("%s; the credentials in use are still valid", error)
            return self._frozen
        self._expires_at = self._now() + lifetime
        self._renew_at = self._expires_at - min(lifetime / 2, MAX_EARLY_SECONDS)
        self._pause = min(lifetime / 10, MAX_PAUSE_SECONDS)
        return keys


def _denial_advice(role: Role) -> str:
    """Return what to do if STS denies the role. STS doesn't say which part is wrong."""
    external_id = (
        "no external id was given: give the one that the role's trust policy requires"
        if role.external_id is None
        else "check the given external id against the role's trust policy"
    )
    return (
        f"{external_id}; allow sts:AssumeRole on it for the credentials in use, and "
        "trust them in the role's trust policy"
    )


def _keys(answer: Mapping[str, Any], role: Role) -> FrozenCredentials:
    keys = answer["Credentials"]
    return FrozenCredentials(
        keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], role.account
    )


def _lifetime(answer: Mapping[str, Any]) -> float:
    """Return for how many seconds the keys stay valid.

    If the local clock is wrong, use the service's time instead.
    """
    expires: datetime = answer["Credentials"]["Expiration"]
    now = datetime.now(UTC)
    date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    if date is not None:
        theirs = parsedate_to_datetime(date)
        # The Date header has only whole seconds, so a local clock that is almost right
        # is more precise.
        if abs((now - theirs).total_seconds()) > DATE_SECONDS:
            now = theirs
    return (expires - now).total_seconds()


class BorrowedCredentials(AioCredentials):  # type: ignore[misc]
    """Another event loop's credentials, for a thread that must not wait for that loop.

    Refreshable credentials hold locks of the loop that created them, so only that loop
    can fetch the keys. While it is busy, the last keys are used again. The last keys
    stay valid for longer than any stall of a loop that the group tolerates.
    """

    def __init__(
        self,
        owner: Credentials,
        last: FrozenCredentials | ReadOnlyCredentials,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__("", "", method="loaned")
        self._owner, self._last, self._loop = owner, last, loop
        self._asked: Future[FrozenCredentials | ReadOnlyCredentials] | None = None
        self._ask_at = 0.0

    async def get_frozen_credentials(self) -> FrozenCredentials | ReadOnlyCredentials:
        """Return the owner's present keys, or the last known ones if it is busy."""
        if self._loop.is_closed() or not can_renew(self._owner):
            return self._last
        if self._asked is None:
            now = asyncio.get_running_loop().time()
            if now < self._ask_at:
                return self._last
            self._ask_at = now + REQUEST_SECONDS
            self._asked = asyncio.run_coroutine_threadsafe(self._fetch(), self._loop)
            answer = asyncio.wrap_future(self._asked)
            answer.add_done_callback(_retrieve_error)
            await asyncio.wait([answer], timeout=BORROW_SECONDS)
        # Only the call that requested the keys has waited for them. If they arrive
        # later, another call takes them.
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            self._last = asked.result()
        return self._last

    async def get_account_id(self) -> str | None:
        """Return the account, or None if the owner doesn't know it."""
        return getattr(self._last, "account_id", None)

    async def _fetch(self) -> FrozenCredentials | ReadOnlyCredentials:
        return await self._owner.get_frozen_credentials()


def _retrieve_error(
    answer: asyncio.Future[FrozenCredentials | ReadOnlyCredentials],
) -> None:
    """Retrieve a late error, so that asyncio doesn't log it."""
    if not answer.cancelled():
        answer.exception()


def can_renew(credentials: object) -> bool:
    """Return whether credentials may renew their keys. AioCredentials never do so."""
    return type(credentials) is not AioCredentials


class FixedProvider:
    """A session's source of credentials, which always returns the same ones."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def load_credentials(self) -> Credentials:
        """Return the credentials."""
        return self._credentials
