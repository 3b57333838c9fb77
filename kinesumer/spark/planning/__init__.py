"""Decides on the driver which ranges a batch reads."""
