"""Converts the records of GetRecords answers to Arrow columns."""
