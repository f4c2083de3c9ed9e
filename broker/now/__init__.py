"""Answers ordinary requests in the synchronous step that has read them.

The requests of one client resemble each other: those of a producer differ in their correlation id and their records.
So the first one, which is handled as any other, leaves a *shape* with its connection: the bytes that all have in
common, and the bytes of the response around what changes. A later frame whose bytes are the same in all other places
needs no decoding, and its response no encoding (`shape.py`).

A shape knows bytes only. What they mean is asked at each request: the partition, its leadership, its configuration. The
checks are those of the handlers, which call the same functions.
"""
