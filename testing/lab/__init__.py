"""The laboratory: what a test does to brokers in Python, done over HTTP, for programs in every language."""
