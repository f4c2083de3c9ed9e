"""Spark's Kafka source and sink against Barnabas and against Apache Kafka: the same scripts, the same results."""
