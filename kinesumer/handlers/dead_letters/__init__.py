"""Store the records that no handler could process, and read them again."""
