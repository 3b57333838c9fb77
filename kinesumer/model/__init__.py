"""Types for records, positions, streams and rows of the state store."""
