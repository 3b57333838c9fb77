"""``kinesumer demo``: many processes, real faults, and a verdict that is checked."""
