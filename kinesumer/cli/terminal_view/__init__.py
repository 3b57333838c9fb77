"""The picture of ``kinesumer status --watch``: the dashboard's, in a terminal."""
