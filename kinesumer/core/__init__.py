"""The decisions of the library, computed from given values without a clock or I/O."""
