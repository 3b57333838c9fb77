"""Puts records into streams."""
