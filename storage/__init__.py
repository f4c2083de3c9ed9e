"""Partition logs on disk, in Kafka's own file formats (see README.md)."""
