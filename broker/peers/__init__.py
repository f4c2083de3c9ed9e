"""Connections to other brokers and to the controller."""
