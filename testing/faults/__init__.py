"""What a broker of a test does wrong to clients, and the log of their requests. See `faults.py`."""
