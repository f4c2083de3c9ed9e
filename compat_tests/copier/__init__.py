"""Kafka's TransactionalMessageCopier copies numbers on a cluster of three while brokers or copiers are struck."""
