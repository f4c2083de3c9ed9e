"""This broker as a member of its cluster: what it reads from and writes to the metadata store."""
