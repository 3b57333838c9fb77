"""Compute the waits of all loops that retry or look again."""

from typing import NamedTuple


class Backoff(NamedTuple):
    """Waits that double with each failure in a row, up to a longest wait.

    For example, the limits of ``Backoff(0.5, 3.0)`` are 0.5, 1, 2, 3, 3, … seconds.
    """

    first_seconds: float
    longest_seconds: float

    def limit_seconds(self, failures: int) -> float:
        """Return the longest wait after ``failures`` failures in a row (1 or more)."""
        # The exponent is limited, since a float can't hold 2.0 ** 1024.
        doubled = self.first_seconds * 2.0 ** min(failures - 1, 40)
        return min(doubled, self.longest_seconds)

    def wait_seconds(self, failures: int, jitter: float) -> float:
        """Return a random wait from half of the longest wait up to the longest wait.

        ``jitter`` is a random number from 0 to 1.
        """
        return self.limit_seconds(failures) * (0.5 + jitter / 2)


# For calls of services, whose outages and throttling last for seconds. The first
# wait is some round trips. The longest one is short beside such an outage.
CALL_BACKOFF = Backoff(0.15, 3.0)
# For what a person or a pipeline has to repair: soon tries would only cost requests.
# Half a minute more is not noticed after a repair that took minutes.
REPAIR_BACKOFF = Backoff(1.0, 30.0)

# Between two looks at what AWS is changing, such as a stream that is being created. It
# changes that within seconds, and allows few calls a second.
LOOK_SECONDS = 0.5
# A client describes a stream at most once in this time, because AWS allows an account
# 20 descriptions a second.
DESCRIBE_SECONDS = 1.0
# Between two looks at what this process is changing, such as a lapsed lease. It is
# short beside a lease, and costs little beside a request.
CHECK_SECONDS = 0.05
