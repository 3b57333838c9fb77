"""Values: records, positions, streams and the rows of the state store."""
