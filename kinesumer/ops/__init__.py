"""Operate a group: commands, dashboard, exporter and migrations."""
