"""The table of properties, in parts."""
