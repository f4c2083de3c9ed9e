"""Key stores and trust stores, and the contexts that TLS makes of them."""
