"""Compute the waits of all retry loops, with exponential backoff."""


def max_backoff_seconds(failures: int, initial: float, maximum: float) -> float:
    """Return the longest wait after ``failures`` failures in a row (1 or more).

    It starts at ``initial`` seconds and doubles with each failure, up to ``maximum``.
    """
    # The exponent is limited, since a float can't hold 2.0 ** 1024.
    return min(initial * 2.0 ** min(failures - 1, 40), maximum)


def backoff_seconds(
    failures: int, initial: float, maximum: float, jitter: float
) -> float:
    """Return a random wait from half of the longest wait up to the longest wait.

    ``jitter`` is a random number from 0 to 1.
    """
    return max_backoff_seconds(failures, initial, maximum) * (0.5 + jitter / 2)
