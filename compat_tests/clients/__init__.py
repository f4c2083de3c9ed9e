"""Other people's clients against a running broker: one folder each, run by `python -m compat_tests.clients NAME`."""
