"""A tour of replication: scenes that a student watches, on brokers that run the real code."""
