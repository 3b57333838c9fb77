"""Positions taken out of a group, put into one, and exchanged with other consumers."""
