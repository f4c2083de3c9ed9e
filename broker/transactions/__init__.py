"""Producer ids; the transaction coordinator's room."""
