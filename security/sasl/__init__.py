"""SASL: the mechanisms, the states of a login on both sides, and the credentials that they look at."""
