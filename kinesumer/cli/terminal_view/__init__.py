"""The picture of ``kinesumer status --watch``: the dashboard's page in a terminal."""
