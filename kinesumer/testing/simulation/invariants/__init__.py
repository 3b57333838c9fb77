"""The predicates that a simulation checks: I1 to I17 and L1 to L16.

``docs/how-it-is-tested.md`` explains them.
"""
