"""This machine's clock against AWS's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin.doctor.finding import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesumer.admin.doctor.permission_probe import Probe

NOTED_SECONDS = 5.0
WRONG_SECONDS = 60.0
REFUSED_SECONDS = 240.0
"""AWS refuses requests that were signed more than five minutes ago, or ahead."""
_REFUSED = re.compile(r"RequestTimeTooSkewed|signature (expired|not yet)", re.I)
HARMLESS = (
    "leases, heartbeats and positions don't depend on it; signatures of requests, "
    "times that you start at, and logs do"
)
ADVICE = "let the machine keep its time by NTP (chrony, systemd-timesyncd)"


class ClockReading(NamedTuple):
    """AWS's time, and this machine's before and after it was asked."""

    service: float
    """Whole seconds since 1970, cut off."""
    before: float
    after: float

    @property
    def ahead(self) -> float:
        """Return by how much this machine surely is ahead; negative if behind."""
        least = self.before - (self.service + 1)
        most = self.after - self.service
        if least > 0:
            return least
        return min(most, 0.0)


def clock_skew(
    reading: ClockReading | None, trials: Iterable[Probe]
) -> Iterator[Finding]:
    """Compare the clocks, or tell that AWS refuses this one's signatures."""
    refused = [t for t in trials if t.error and _REFUSED.search(str(t.error))]
    if refused:
        yield Finding(
            "clocks",
            Severity.CRITICAL,
            "this machine's clock",
            f"AWS refuses the time of requests: {refused[0].error}",
            ADVICE,
        )
    elif reading is not None and abs(reading.ahead) >= NOTED_SECONDS:
        side = "ahead of" if reading.ahead > 0 else "behind"
        yield Finding(
            "clocks",
            _severity(abs(reading.ahead)),
            "this machine's clock",
            f"at least {abs(reading.ahead):.0f} s {side} AWS's; {HARMLESS}",
            f"{ADVICE}; AWS refuses requests from five minutes on",
        )


def _severity(seconds: float) -> Severity:
    if seconds >= REFUSED_SECONDS:
        return Severity.CRITICAL
    return Severity.WARNING if seconds >= WRONG_SECONDS else Severity.NOTE
