"""A small and strict Kinesis: the model is pure, ``now`` is passed in."""
