"""Get keys from a session."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from aiobotocore.credentials import AioCredentials, AioRefreshableCredentials
from aiobotocore.session import AioSession
from botocore.exceptions import (
    BotoCoreError,
    CredentialRetrievalError,
    NoCredentialsError,
)
from botocore.utils import parse_to_aware_datetime

from kinesumer.aws.credentials import FrozenCredentials, Keys
from kinesumer.aws.errors import KEY_KINDS, failure_of
from kinesumer.core.backoff import CHECK_SECONDS
from kinesumer.errors import ConfigurationError
from kinesumer.runtime.text import SECRETS

# The packages whose sessions get their credentials from providers.
LIBRARIES = ("aiobotocore", "aioboto3", "boto3", "botocore")
# The files with tokens that variables name.
TOKEN_FILES = ("CONTAINER_AUTHORIZATION_TOKEN", "WEB_IDENTITY_TOKEN")


class _Shared:
    """The state of a session that several event loops share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held while keys are fetched
        # True if botocore's providers gave the session's credentials, not the user.
        self.is_provided = False


_SHARED: WeakKeyDictionary[AioSession, _Shared] = WeakKeyDictionary()
_SHARED_LOCK = threading.Lock()


def _shared(inner: AioSession | None) -> _Shared:
    if inner is None:
        return _Shared()
    with _SHARED_LOCK:
        return _SHARED.setdefault(inner, _Shared())


class SessionKeys:
    """The keys of a session, in however many event loops the session is used.

    Botocore's credentials have locks that work on one event loop. So these locks are
    avoided: only one loop at a time fetches the keys of a session.
    """

    method = "session"

    def __init__(self, session: Any) -> None:
        self._session, self._inner = session, inner_session(session)
        self._shared = _shared(self._inner)
        self._credentials: Any = None

    async def fetch(self) -> Keys:
        """Return the keys that the session has now. Read files and processes anew."""
        self._note_tokens()
        async with self._alone():
            if self._credentials is None:
                self._credentials = await self._first()
                return await _present(self._credentials)
            refresh = _refresh_function(self._credentials)
            if refresh is None:
                await self._read_again()
                return await _present(self._credentials)
            try:
                return await _refreshed(self._credentials.method, refresh)
            except Exception as error:
                if failure_of(error).kind not in KEY_KINDS:
                    raise
                # The keys with which a role is assumed were replaced.
                if not await self._read_again():
                    raise
            return await _present(self._credentials)

    def _note_tokens(self) -> None:
        """Remember the tokens with which botocore's providers ask for keys."""
        SECRETS.add(os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN"))
        files = [os.environ.get(f"AWS_{name}_FILE") for name in TOKEN_FILES]
        with suppress(BotoCoreError):
            scoped = {} if self._inner is None else self._inner.get_scoped_config()
            files.append(scoped.get("web_identity_token_file"))
        for file in filter(None, files):
            with suppress(OSError, ValueError):  # a provider reports it
                SECRETS.add(Path(file).expanduser().read_text().strip())

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Hold the session's lock, without blocking the event loop."""
        lock = self._shared.lock  # the renewal of another event loop may hold it
        while not lock.acquire(blocking=False):
            await asyncio.sleep(CHECK_SECONDS)
        try:
            yield
        finally:
            lock.release()

    async def _first(self) -> Any:
        if self._has_providers and getattr(self._inner, "_credentials", None) is None:
            self._shared.is_provided = True
        found = self._session.get_credentials()
        if not inspect.isawaitable(found):
            raise ConfigurationError(
                f"session is a {type(self._session).__name__}, which isn't "
                "asynchronous: pass an aiobotocore or aioboto3 session"
            )
        return _require(await found)

    async def _read_again(self) -> bool:
        """Let the providers read their files again. Return False if there are none."""
        before = self._credentials
        if not self._has_providers:
            self._credentials = _require(await self._session.get_credentials())
            return True
        # Only providers create fixed keys with another method than "explicit".
        is_from_file = type(before) is AioCredentials and before.method != "explicit"
        if self._inner is None or not (self._shared.is_provided or is_from_file):
            return False
        provider = self._inner.get_component("credential_provider")
        _forget_profiles(provider)
        found = _require(await provider.load_credentials())
        method, last = getattr(found, "method", None), getattr(before, "method", None)
        if method != last:
            # While a file is being replaced, a provider may not find its keys. The
            # next provider's keys belong to somebody else, e.g. to the instance.
            raise CredentialRetrievalError(
                provider=last, error_msg=f"it gives none, and {method} gives others"
            )
        self._credentials = found
        return True

    @property
    def _has_providers(self) -> bool:
        """True if the session gets its credentials as aiobotocore's sessions do."""
        methods = [self._session.get_credentials]
        if self._inner is None:
            return False
        methods.append(self._inner.get_credentials)
        return all(
            (getattr(method, "__module__", None) or "").partition(".")[0] in LIBRARIES
            for method in methods
        )


def _forget_profiles(resolver: Any) -> None:
    """Let providers load a chain of profiles again.

    aiobotocore 2 takes profiles that it has visited before for a circle.
    """
    for provider in getattr(resolver, "providers", ()):
        if hasattr(provider, "_visited_profiles"):
            provider._visited_profiles = [provider._profile_name]


def _require(credentials: Any) -> Any:
    if credentials is None:
        raise NoCredentialsError
    return credentials


def _refresh_function(credentials: Any) -> Callable[[], Any] | None:
    """Return botocore's function that gets new keys, or None for other credentials.

    ``get_frozen_credentials()`` would use a lock of one event loop, hide why a renewal
    fails, and drop valid keys in favour of keys that have expired.
    """
    usual = AioRefreshableCredentials.get_frozen_credentials
    if getattr(type(credentials), "get_frozen_credentials", None) is not usual:
        return None
    return getattr(credentials, "_refresh_using", None)


async def _refreshed(method: str, refresh: Callable[[], Any]) -> Keys:
    found = refresh()
    if inspect.isawaitable(found):
        found = await found
    if not found:
        raise CredentialRetrievalError(provider=method, error_msg="it has no keys")
    keys = FrozenCredentials(
        found["access_key"],
        found["secret_key"],
        found.get("token"),
        found.get("account_id"),
    )
    return Keys(keys, _seconds_until(found.get("expiry_time")))


async def _present(credentials: Any) -> Keys:
    """Return the keys of credentials that were just loaded."""
    frozen = await credentials.get_frozen_credentials()
    keys = FrozenCredentials(
        frozen.access_key,
        frozen.secret_key,
        frozen.token,
        getattr(frozen, "account_id", None),
    )
    if type(credentials) is AioCredentials:
        return Keys(keys)
    if not hasattr(credentials, "_expiry_time"):
        return Keys(keys, None)
    return Keys(keys, _seconds_until(credentials._expiry_time))


def _seconds_until(expires: Any) -> float:
    if expires is None:
        return math.inf
    return float((parse_to_aware_datetime(expires) - datetime.now(UTC)).total_seconds())


def inner_session(session: Any) -> AioSession | None:
    """Return the aiobotocore session: the argument, or the one that aioboto3 wraps."""
    for candidate in (session, getattr(session, "_session", None)):
        if isinstance(candidate, AioSession):
            return candidate
    return None
