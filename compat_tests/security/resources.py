"""What the placeholders of a row stand for: the same names at both brokers, and each broker's ids."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.wire import messages as m
from compat_tests.security.cases import Case
from compat_tests.security.requests import OWNER, PLACEHOLDERS, Row

SHARED_TOPIC = "m-shared"  # what groups commit offsets for, if their row has no topic


class Resources:
    """The resources of a row, or of one of its cases."""

    def __init__(self, prefix: str, used: set[Any]) -> None:
        self.used = used  # the placeholders
        self.meanings: dict[Any, Any] = {
            each: f"{prefix}{each}" for each in PLACEHOLDERS if isinstance(each, str) and not each.startswith("User:")
        }
        self.meanings[f"User:{OWNER}"] = f"User:{self[OWNER]}"

    def __getitem__(self, placeholder: Any) -> Any:
        return self.meanings[placeholder]


class Cell(NamedTuple):
    """A case with its resources, and with the user who asks if one has to log in."""

    case: Case
    resources: Resources
    user: str


def filled(value: Any, meanings: Mapping[Any, Any], used: set[Any] | None = None) -> Any:
    """A copy of a request, or of a part, with what the placeholders stand for; those that it has go into `used`."""
    match value:
        case m.Struct():
            before = {name: getattr(value, name) for name in value.FIELDS}
            after = {name: filled(each, meanings, used) for name, each in before.items()}
            # A default that all share cannot be copied.
            return value if after == before else type(value)(**after)
        case list() | tuple():
            return [filled(each, meanings, used) for each in value]
        case str() | bytes() | int() if value in meanings:
            if used is not None:
                used.add(value)
            return meanings[value]
        case _:
            return value


def placeholders_of(row: Row) -> set[Any]:
    """Those that the request and the needs of a row have."""
    used: set[Any] = {need.name for need in row.needs if need.name in PLACEHOLDERS}
    filled(row.request, PLACEHOLDERS, used)
    return used


def cells_of(cases: Sequence[Case]) -> Iterator[Cell]:
    """Each case with its resources: those of the row, or its own; and a user of its own."""
    rows = {name: number for number, name in enumerate(dict.fromkeys(case.row.name for case in cases))}
    shared: dict[str, Resources] = {}
    for number, case in enumerate(cases):
        name, prefix = case.row.name, f"m{rows[case.row.name]:03}-"
        if case.row.has_own_resources:
            found = Resources(f"{prefix}{number:04}-", placeholders_of(case.row))
        else:
            found = shared.get(name) or shared.setdefault(name, Resources(prefix, placeholders_of(case.row)))
        yield Cell(case, found, f"c{number}")
