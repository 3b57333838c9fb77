"""Convert bytes and dictionaries to the model and back, without I/O."""
