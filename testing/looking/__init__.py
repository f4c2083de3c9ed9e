"""What a test sees and does inside a running broker: its groups, its producers, its records."""
