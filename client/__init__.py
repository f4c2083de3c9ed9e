"""A Kafka client on Trio: connections with TLS and login, metadata, produce, fetch and administration."""
