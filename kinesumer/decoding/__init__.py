"""Decode the data of records into values of the user's types."""
