"""The command ``kinesumer demo``, which disturbs a group and checks its records."""
