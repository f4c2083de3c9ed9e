"""HTTP beside Kafka's protocol: metrics, health, and a page that shows the broker."""
