"""Runs on the executors. Reads the ranges of a task."""
