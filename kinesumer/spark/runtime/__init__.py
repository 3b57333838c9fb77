"""Event loop, JVM, memory and clients of Spark's processes."""
