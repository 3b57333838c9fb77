"""Check histories of clients. These modules import nothing else of the library."""
