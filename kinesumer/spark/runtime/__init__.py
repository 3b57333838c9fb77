"""Manages the event loop, Java and the AWS clients in Spark's Python processes."""
