"""Decide what it means that AWS refuses the keys of a call.

Keys that AWS has never accepted are a mistake, which the user must correct. Keys that
it had accepted before were replaced, or have expired: their source may have others.
"""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from kinesumer.aws.credentials import SigningKeys
from kinesumer.aws.errors import KEY_KINDS, AwsFailure, Kind, describe, failure_of

CONTEXT = "kinesumer-key-id"  # names a value in a call's context


class KeyUse:
    """The use of keys by the calls of one client, to one service and region.

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
