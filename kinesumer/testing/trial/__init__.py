"""Run groups of real processes under faults, and check what they did."""
