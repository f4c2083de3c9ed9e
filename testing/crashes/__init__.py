"""Histories of one log directory that crashes; the seed determines the history. See `history.py`."""
