"""Decisions of the controller (pure): functions from the image to steps."""
