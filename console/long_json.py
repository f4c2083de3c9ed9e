"""JSON of views with thousands of rows: encoded row by row, so that no step holds the event loop for long (shell)."""

import json
from collections.abc import Mapping

from barnabas.console.exchange import JSON, Answer
from barnabas.world.pacing import paced

_encode = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` makes an encoder each time


def json_text(value: object) -> str:
    """A value as JSON, in one line."""
    return _encode(value)


async def long_json_text(value: Mapping[str, object]) -> str:
    """As `json_text`, of an object some of whose values are long lists; other tasks run between their rows."""
    parts = []
    for name, each in value.items():
        # What is in a row is bounded, by the sizes of names and the number of replicas.
        rows = [json_text(row) async for row in paced(each)] if isinstance(each, list) else None
        parts.append(f"{json_text(name)}: {json_text(each) if rows is None else _array(rows)}")
    return f"{{{', '.join(parts)}}}"


def _array(rows: list[str]) -> str:
    return f"[{', '.join(rows)}]"


async def long_json_answer(value: Mapping[str, object]) -> Answer:
    """The same as an answer."""
    return Answer(200, JSON, (await long_json_text(value)).encode("utf-8", "replace"))
