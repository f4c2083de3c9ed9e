"""Who may speak: credentials. Nothing is asked for them yet; they are kept for the listeners that will."""
