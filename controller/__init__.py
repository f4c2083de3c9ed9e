"""Who leads what: metadata store, election and the controller (see README.md)."""
