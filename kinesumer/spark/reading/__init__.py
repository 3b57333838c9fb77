"""Reads the ranges of a task on an executor."""
