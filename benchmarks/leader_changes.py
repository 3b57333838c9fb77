"""Count how often the leader changes in a rolling restart, by two rules.

    python -m benchmarks.leader_changes

Each restart replaces ten clients with random ids, one after the other. The new client
starts before the old one stops. "lowest id" means that the client with the lowest id
leads. "stays" is the library's rule: a leader leads until it stops.
"""

from __future__ import annotations

from random import Random

from benchmarks.report import Report

RESTARTS, CLIENTS = 1000, 10


def main() -> None:
    """Print the mean number of changes in a restart."""
    random, lowest_id, stays = Random(1), 0, 0
    for _ in range(RESTARTS):
        clients = [random.random() for _ in range(CLIENTS)]
        lowest = leader = min(clients)
        for old in list(clients):
            for change in (clients.append, clients.remove):
                change(random.random() if change == clients.append else old)
                if min(clients) != lowest:
                    lowest, lowest_id = min(clients), lowest_id + 1
                if leader not in clients:
                    leader, stays = min(clients), stays + 1
    report = Report(f"changes of the leader while {CLIENTS} clients are replaced")
    report.note("lowest id", f"{lowest_id / RESTARTS:.1f}")
    report.note("stays", f"{stays / RESTARTS:.1f}")
    report.print()


if __name__ == "__main__":
    main()
