"""Connections: frames in, responses out, and what both may cost."""
