"""What a Fetch reads, and from which replica."""
