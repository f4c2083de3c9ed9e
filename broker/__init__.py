"""The broker process: connections, handlers, partitions and coordinators (see README.md)."""
