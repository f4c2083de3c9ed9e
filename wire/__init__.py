"""The Kafka protocol as values (pure): without I/O, clock or event loop (see README.md)."""
