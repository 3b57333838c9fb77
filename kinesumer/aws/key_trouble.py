"""Report what is wrong with keys: in the log, and to whoever shows a client's state."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from kinesumer.aws.errors import cause_of
from kinesumer.runtime.failure_log import LOG_REPEAT_SECONDS, logger

# How long a call that AWS has refused waits for other keys. STS answers faster, and if
# it doesn't, callers repeat the call. The state store's calls take at most 5 s. If the
# refusals last longer, they are logged.
WAIT_SECONDS = 2.0


class KeyTrouble:
    """The trouble with the keys of one source, and the time since when it lasts.

    ``report`` is called with a text for each failure, and with an empty text at the
    end. Any thread may call the methods.
    """

    def __init__(
        self,
        source: str,
        now: Callable[[], float],
        report: Callable[[str, str], None],
    ) -> None:
        self._source, self._now, self._report = source, now, report
        self._lock = threading.Lock()
        self._cause = ""  # why the last renewal failed
        # The services that refuse the keys, and what they said.
        self._refusals: dict[object, str] = {}
        self._since = self._log_at = math.nan

    @property
    def text(self) -> str:
        """The trouble in one line; empty if there is none."""
        with self._lock:
            return self._text()

    def renewal_failed(self, error: Exception, left_seconds: float) -> None:
        """Note that the source gave no keys. Those in use stay in use."""
        with self._lock:
            self._begin()
            self._cause = cause_of(error)
            if not self._refusals:
                text = f"{self._text()}; trying again"
                if 0 < left_seconds < math.inf:
                    text += f", the keys in use expire in {left_seconds:.0f} s"
                self._log(logging.WARNING, text)
            self._report(self._source, self._text())

    def refused(self, by: object, reason: str) -> None:
        """Note that a service refuses the keys, after it had accepted keys before."""
        with self._lock:
            self._begin()
            if not self._refusals:
                # The first call that is refused reports that itself.
                self._log_at = self._now() + WAIT_SECONDS
            self._refusals[by] = reason
            text = f"{self._text()}; trying again, calls wait for other keys"
            self._log(logging.ERROR, text)
            self._report(self._source, self._text())

    def accepted(self, by: object) -> None:
        """Note that a service accepts the keys."""
        with self._lock:
            if self._refusals.pop(by, None) is not None:
                self._end_if_over()

    def fetched(self, *, is_new: bool) -> None:
        """Note that the source gave keys, and whether they are new."""
        with self._lock:
            had_trouble = bool(self._cause or self._refusals)
            self._cause = ""
            if is_new:
                self._refusals.clear()
            if had_trouble:
                self._end_if_over()

    def _begin(self) -> None:
        if not self._cause and not self._refusals:
            self._since = self._log_at = self._now()

    def _end_if_over(self) -> None:
        if self._cause or self._refusals:
            return
        seconds = self._now() - self._since
        logger.warning(
            "the AWS credentials of %s work again after %.0f s", self._source, seconds
        )
        self._report(self._source, "")

    def _text(self) -> str:
        seconds = f"{self._now() - self._since:.0f} s"
        if self._refusals:
            reason = next(reversed(self._refusals.values()))
            why = self._cause or "their source has no others yet"
            return (
                f"AWS has refused the credentials of {self._source} for {seconds} "
                f"({reason}): {why}"
            )
        if self._cause:
            return (
                f"the AWS credentials of {self._source} could not be renewed for "
                f"{seconds}: {self._cause}"
            )
        return ""

    def _log(self, level: int, text: str) -> None:
        if self._now() >= self._log_at:
            self._log_at = self._now() + LOG_REPEAT_SECONDS
            logger.log(level, "%s", text, extra={"error": text})
