"""What ``kinesumer run`` runs: an application, in this process or in several."""
