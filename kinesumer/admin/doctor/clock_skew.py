"""Compare this machine's clock with AWS's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin.doctor.finding import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesumer.admin.doctor.permission_probe import Probe

NOTE_SECONDS = 5.0
WARNING_SECONDS = 60.0
CRITICAL_SECONDS = 240.0
"""AWS rejects requests whose signature is five minutes old or ahead."""
_REJECTED = re.compile(r"RequestTimeTooSkewed|signature (expired|not yet)", re.I)
EFFECT = (
    "leases, heartbeats and positions don't depend on it; signatures of requests, "
    "start times and logs do"
)
ADVICE = "synchronize the machine's clock by NTP (chrony, systemd-timesyncd)"


class ClockReading(NamedTuple):
    """AWS's time, and this machine's time before and after the call."""

    service: float
    """Whole seconds since 1970, rounded down."""
    before: float
    after: float

    @property
    def ahead(self) -> float:
        """The seconds by which this machine is ahead at least; negative if behind."""
        lower = self.before - (self.service + 1)
        upper = self.after - self.service
        return lower if lower > 0 else min(upper, 0.0)


def clock_skew(
    reading: ClockReading | None, probes: Iterable[Probe]
) -> Iterator[Finding]:
    """Yield a finding if the clocks differ or AWS rejects this clock's signatures."""
    rejected = [t for t in probes if t.error and _REJECTED.search(str(t.error))]
    if rejected:
        yield Finding(
            "clocks",
            Severity.CRITICAL,
            "this machine's clock",
            f"AWS rejects the time of requests: {rejected[0].error}",
            ADVICE,
        )
    elif reading is not None and abs(reading.ahead) >= NOTE_SECONDS:
        side = "ahead of" if reading.ahead > 0 else "behind"
        yield Finding(
            "clocks",
            _severity(abs(reading.ahead)),
            "this machine's clock",
            f"at least {abs(reading.ahead):.0f} s {side} AWS's; {EFFECT}",
            f"{ADVICE}; AWS rejects requests from five minutes on",
        )


def _severity(seconds: float) -> Severity:
    if seconds >= CRITICAL_SECONDS:
        return Severity.CRITICAL
    return Severity.WARNING if seconds >= WARNING_SECONDS else Severity.NOTE
