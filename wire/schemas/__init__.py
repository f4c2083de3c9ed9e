"""Literal message tables, one file per family of APIs."""
