"""Measurements on this machine, each beside a bare loop in the same run: `python -m bench` (or `make bench`)."""
