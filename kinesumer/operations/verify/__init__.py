"""What ``kinesumer verify`` compares: stored positions, and the streams themselves."""
