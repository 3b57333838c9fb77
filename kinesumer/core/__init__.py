"""Everything that decides: values in, values out, no clock, no I/O."""
