"""A page on 127.0.0.1 that shows a fleet: who consumes which part of every stream."""
