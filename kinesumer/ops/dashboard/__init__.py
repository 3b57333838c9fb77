"""Serve a page on 127.0.0.1 that shows which client consumes which shards."""
