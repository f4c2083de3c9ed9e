"""This broker as a member of its cluster: registration, topics, configuration in the metadata store."""
