"""The data pipeline as a user runs it: processes with PySpark, brokers, and directories that Apache Kafka wrote."""
