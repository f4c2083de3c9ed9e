"""JSON of views with thousands of rows: encoded row by row, so that no step holds the event loop for long (shell)."""

import json
from collections.abc import Mapping

from barnabas.console.exchange import JSON, Answer
from barnabas.world.pacing import paced


async def long_json_answer(value: Mapping[str, object]) -> Answer:
    """As `json_answer`, of an object some of whose values are long lists; other tasks run between their rows."""
    parts = []
    for name, each in value.items():
        # What is in a row is bounded, by the sizes of names and the number of replicas.
        text = f"[{', '.join([_text(row) async for row in paced(each)])}]" if isinstance(each, list) else _text(each)
        parts.append(f"{_text(name)}: {text}")
    return Answer(200, JSON, f"{{{', '.join(parts)}}}".encode("utf-8", "replace"))


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
