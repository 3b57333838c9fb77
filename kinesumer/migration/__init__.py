"""Export and import of positions, as files and as leases of the KCL."""
