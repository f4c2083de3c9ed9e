"""The coordinators of consumer groups and transactions, and the internal topics that they keep their state in."""
