"""Kafka's configuration (pure): the table of properties, parsing, and live values."""
