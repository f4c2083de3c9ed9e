"""Histories of one log directory that crashes: one seed, one history. See `history.py`."""
