"""Partitions and their replicas: roles, in-sync replicas, high watermark, fetchers."""
