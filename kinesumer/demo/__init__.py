"""``kinesumer demo``: many processes, real faults, and a checked verdict."""
