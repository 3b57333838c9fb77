"""Exponential backoff with jitter."""


def backoff_seconds(
    failures: int, initial: float, maximum: float, jitter: float
) -> float:
    """Return how long to wait after ``failures`` failures in a row (1 or more).

    The wait starts at ``initial`` seconds and doubles with each failure, up to
    ``maximum``. ``jitter``, a random number from 0 to 1, decides how much of the upper
    half of it counts.
    """
    # A float can't hold 2.0 ** 1024.
    longest = initial * 2.0 ** min(failures - 1, 40)
    return min(longest, maximum) * (0.5 + jitter / 2)
