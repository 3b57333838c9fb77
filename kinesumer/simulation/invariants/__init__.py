"""The invariants that a simulation checks at each write and each delivery."""
