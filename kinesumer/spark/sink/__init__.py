"""The sink: rows of a query become records of a stream."""
