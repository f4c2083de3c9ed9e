"""A whole cluster in one process and in virtual time: one seed, one history. See `cluster.py`."""
