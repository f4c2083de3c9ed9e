"""Quotas (pure): rates, token buckets, and how long a client is throttled."""
