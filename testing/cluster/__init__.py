"""Several brokers of a test, with the links between them. See `cluster.py`."""
