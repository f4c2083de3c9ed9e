"""Authentication and quotas: SCRAM credentials and client quotas are stored; no listener enforces them yet."""
