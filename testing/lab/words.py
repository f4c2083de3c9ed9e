"""The words of a request to the laboratory: their types, and the errors for what is none (pure).

A `Word` is a property of a JSON body, or a parameter of the query or of the path. What a word means is checked by what
it is handed to; here is only that it is there, and of its type.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.testing.errors import FaultError
from barnabas.testing.faults.matching import nearest

Given = Mapping[str, object]

# Type in JSON Schema -> what an error says, and the types in Python. A bool is an int in Python and no number in JSON.
TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "string": ("a text", (str,)),
    "integer": ("a whole number", (int,)),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", (bool,)),
    "object": ("an object", (dict,)),
    "array": ("a list", (list,)),
}


class Word(NamedTuple):
    """One word. With `other_type` it may be of that type as well; `choices` are all its values."""

    name: str
    type: str
    about: str
    is_required: bool = False
    other_type: str = ""
    choices: Sequence[object] = ()

    @property
    def schema(self) -> dict[str, object]:
        """As JSON Schema."""
        types = [each for each in (self.type, self.other_type) if each]
        found: dict[str, object] = {"type": types[0] if len(types) == 1 else types, "description": self.about}
        if self.choices and not self.other_type:
            found["enum"] = list(self.choices)
        elif self.choices:
            # Any value of the other type will do: an API has a name and a number.
            del found["type"]
            found["anyOf"] = [{"enum": list(self.choices)}, {"type": self.other_type}]
        return found


def check_words(words: Sequence[Word], given: Given) -> None:
    """FaultError with the first word that is unknown, missing or of another type."""
    check_names(words, given)
    for word in words:
        if word.name in given:
            check_type(word, given[word.name])


def check_names(words: Sequence[Word], given: Given) -> None:
    """FaultError with the first word that is unknown or missing."""
    # A word that is ignored would leave the test without what it asked for.
    known = [word.name for word in words]
    for name in given:
        if name not in known:
            names = f"there are {', '.join(known)}" if known else "there are no words here"
            raise FaultError(f"no word is called {name!r}{nearest(name, known) or f': {names}'}")
    for word in words:
        if word.is_required and word.name not in given:
            raise FaultError(f"{word.name}: it is missing ({word.about})")


def check_type(word: Word, value: object) -> None:
    """FaultError if a value is not of the type of its word, or none of the choices."""
    # `isinstance(True, int)` holds in Python, and in no other language that sends JSON.
    wanted = [TYPES[each] for each in (word.type, word.other_type) if each]
    is_of_type = any(isinstance(value, types) and (not isinstance(value, bool) or bool in types) for _, types in wanted)
    if not is_of_type:
        raise FaultError(f"{word.name}: {' or '.join(text for text, _ in wanted)}, not {value!r}")
    if word.choices and not word.other_type and value not in word.choices:
        raise FaultError(f"{word.name}: one of {', '.join(map(str, word.choices))}, not {value!r}")


def from_text(word: Word, text: str) -> object:
    """The value of a word in a query or a path. FaultError if the text is not of its type."""
    # What is in an address is text; a body has types of its own.
    try:
        if word.type == "integer":
            return int(text)
        if word.type == "number":
            return float(text)
    except ValueError:
        raise FaultError(f"{word.name}: {TYPES[word.type][0]}, not {text!r}") from None
    if word.type == "boolean":
        if text not in ("true", "false"):
            raise FaultError(f"{word.name}: true or false, not {text!r}")
        return text == "true"
    if word.type == "array":
        return [part for part in text.split(",") if part]
    return text
