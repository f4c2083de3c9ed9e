"""Kafka's configuration: the table of properties, parsing, and live values."""
