"""The view of ``kinesumer status --watch``, which is the dashboard in a terminal."""
