"""The controller: its election, its decisions, and the metadata store (see README.md)."""
