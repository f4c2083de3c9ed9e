"""Decisions of the controller, as pure functions from the image to steps."""
