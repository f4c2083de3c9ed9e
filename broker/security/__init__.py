"""Principals, credentials, ACLs, and the entities of client quotas."""
