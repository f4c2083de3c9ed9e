"""The JSON Schema of the laboratory's requests, and the tables of docs/lab.md, from the table of actions (pure)."""

import json
from collections.abc import Sequence

from barnabas.testing.lab.fault_words import KINDS, MATCHERS, Kind
from barnabas.testing.lab.table import ACTIONS, Action
from barnabas.testing.lab.words import Word

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, object]:
    """`$defs` has one schema for each kind of fault, and one for the body or the query of each other action.

    The name of an action is its method and path: "POST /v1/clock". The schema as a whole is that of POST /v1/faults.
    """
    # One schema a kind: a validator can then say which words that kind has.
    kinds = {f"fault-{name}": _fault_schema(kind) for name, kind in KINDS.items()}
    # A GET has its words in the query, where they are text; their types are those of the values.
    others = {f"{each.method} {each.path}": _object(each.words) for each in ACTIONS if each.checks_words}
    return {
        "$schema": DIALECT,
        "title": "Requests to the laboratory of Barnabas",
        "$ref": "#/$defs/fault",
        "$defs": {
            "fault": {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in kinds]},
            **kinds,
            **others,
        },
    }


def _fault_schema(kind: Kind) -> dict[str, object]:
    return {**_object(kind.words), "examples": [dict(kind.example)]}


def _object(words: Sequence[Word]) -> dict[str, object]:
    return {
        "type": "object",
        "properties": {word.name: word.schema for word in words},
        "required": [word.name for word in words if word.is_required],
        "additionalProperties": False,
    }


def actions_table() -> str:
    """One row for each action: what is asked, what it does."""
    # In the order of the table, which is that of the document.
    rows = [f"| `{each.method} {each.path}` | {each.about} | {_words_text(each)} |" for each in ACTIONS]
    return "\n".join(["| request | what it does | words |", "|-|-|-|", *rows])


def faults_table() -> str:
    """One row for each kind of fault, and one for each matcher."""
    kinds = [
        f"| `{name}` | {kind.first.about} | {'; '.join(map(_word_text, kind.more)) or '-'}"
        f" | `{json.dumps(dict(kind.example))}` |"
        for name, kind in KINDS.items()
    ]
    # Every kind has all of these.
    matchers = [f"| `{word.name}` | {word.about} | {word.type} |" for word in MATCHERS]
    return "\n".join(
        [
            *("| fault | what it does | further words | example |", "|-|-|-|-|"),
            *kinds,
            *("", "| matcher | | |", "|-|-|-|"),
            *matchers,
        ]
    )


def _words_text(action: Action) -> str:
    if not action.checks_words:
        return "[a fault](#faults)"
    return "; ".join(map(_word_text, action.words)) or "-"


def _word_text(word: Word) -> str:
    choices = f": {', '.join(map(str, word.choices))}" if word.choices and not word.other_type else ""
    return f"`{word.name}`{'' if word.is_required else ' (optional)'}: {word.about}{choices}"
