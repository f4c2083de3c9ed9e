"""What any broker writes to the metadata store: topics, partitions, configurations, its registration."""
