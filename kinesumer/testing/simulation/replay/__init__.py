"""Run the client's code again on what a recording says that it was told."""
