"""Barnabas: a message broker that speaks Apache Kafka's binary protocol."""

__version__ = "0.1.0"

from barnabas import form

form.refuse_misfit(__path__[0], __version__, form.__file__)
