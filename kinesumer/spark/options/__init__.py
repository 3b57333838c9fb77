"""The options of ``format("kinesumer")``, read and checked."""
