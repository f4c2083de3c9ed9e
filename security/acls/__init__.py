"""Who a connection is, and what it may do: principals, ACLs, decisions."""
