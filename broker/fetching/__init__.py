"""Plans for Fetch: what it reads, and from which replica."""
