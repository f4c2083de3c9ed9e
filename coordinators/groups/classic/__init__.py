"""A group of the classic protocol, whose leader computes the assignment: its state and its decisions (pure)."""
