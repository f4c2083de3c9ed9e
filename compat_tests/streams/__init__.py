"""Kafka's own system test of exactly-once streams, on a cluster whose brokers and instances are killed."""
