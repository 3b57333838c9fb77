"""Export and import positions, as files and as leases of the KCL."""
