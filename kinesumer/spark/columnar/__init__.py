"""Records of pages as Arrow columns."""
