"""A whole cluster in one process and in virtual time; the seed determines the history. See `cluster.py`."""
