"""Connections: frames in, responses out, and the limits to what both cost."""
