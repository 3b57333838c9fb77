"""The names and tags of what a run creates, by which leftovers are found."""

from __future__ import annotations

# The names of all streams and tables of all runs begin with this.
PREFIX = "kinesumer-acceptance"
# All have this tag. Its value is the run's id.
TAG = "kinesumer:acceptance"
