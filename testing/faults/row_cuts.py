"""Requests and responses are cut by their rows, and put together again (pure).

By a `Layout` (`rows.py`) a request is split into the rows that are wanted and the others, a response loses rows,
and the rows of two responses are joined below the same topic.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from barnabas.testing.faults.rows import LAYOUTS, Layout, Level
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode
from barnabas.wire.schema import Field, Schema
from barnabas.wire.topics import ZERO_TOPIC_ID

FIND_COORDINATOR = 10
SEVERAL_KEYS_VERSION = 4
SUBJECTS_OF_KEYS = {0: "group", 1: "transactional_id"}  # by `key_type` of FindCoordinator

# Subject -> the fields of whole requests that name it.
FIELDS = {"group": ("group_id",), "transactional_id": ("transactional_id", "v3_and_below_transactional_id")}

TopicName = Callable[[bytes], str | None]  # the topic with this id
Wanted = Mapping[str, object]  # subject -> the name that is wanted; None for any
Part = TypeVar("Part", bound=m.Struct)


class Split(NamedTuple):
    """A request in two: with the wanted rows, and with the others. None where there are no rows.

    `asks_for_all` if the request names no rows because it asks for all of them.
    """

    wanted: m.Message | None
    others: m.Message | None
    asks_for_all: bool = False


def subjects_of(api_key: int) -> set[str]:
    """What a fault for this API can be narrowed by, in any of its versions."""
    if api_key == FIND_COORDINATOR:
        return set(SUBJECTS_OF_KEYS.values())
    rows = {subject for layout in LAYOUTS.get(api_key, ()) for subject in layout.subjects}
    fields = {field.name for field in _schema(api_key).fields}
    return rows | {subject for subject, names in FIELDS.items() if fields.intersection(names)}


def name_in(request: m.Message, api_key: int, version: int, subject: str) -> str | None:
    """The group or transactional id that a whole request is about; None if it is about none, or about several."""
    if api_key == FIND_COORDINATOR:
        is_asked = version < SEVERAL_KEYS_VERSION and _subject_of_keys(request) == subject
        return str(request.key) if is_asked and isinstance(request, m.FindCoordinatorRequest) else None
    for field in _schema(api_key).fields:
        if field.name in FIELDS.get(subject, ()) and field.exists_in(version):
            name = getattr(request, field.name)
            return None if name is None else str(name)
    return None


def layout_for(request: m.Message, api_key: int, version: int, subjects: set[str]) -> Layout | None:
    """The layout by which rows of this request are found by these subjects, or None."""
    for layout in LAYOUTS.get(api_key, ()):
        if not layout.first_version <= version <= layout.last_version or not subjects <= layout.subjects:
            continue
        if api_key == FIND_COORDINATOR and layout.request[0].subject != _subject_of_keys(request):
            continue
        return layout
    return None


def split(request: m.Message, layout: Layout, wanted: Wanted, topic_name: TopicName) -> Split:
    """The wanted rows of a request, and the others."""
    field = layout.request[0].field
    elements = getattr(request, field)
    if elements is None:
        return Split(None, request, asks_for_all=True)
    cut = _Cut(layout.request, wanted, topic_name)
    hit, rest = cut.apart(elements, 0)
    return Split(
        copied(request, **{field: hit}) if hit else None,
        copied(request, **{field: rest}) if rest else None,
        cut.met_null,
    )


def without_rows(
    response: m.Message, layout: Layout, wanted: Wanted, topic_name: TopicName
) -> tuple[m.Message, m.Message | None]:
    """The response without the wanted rows, and one that has only them; None if there are none."""
    field = layout.response[0].field
    hit, rest = _Cut(layout.response, wanted, topic_name).apart(getattr(response, field) or (), 0)
    return copied(response, **{field: rest}), copied(response, **{field: hit}) if hit else None


def with_rows(response: m.Message, rows: m.Message, layout: Layout) -> m.Message:
    """The response with the rows of another one as well."""
    field = layout.response[0].field
    joined = _joined(getattr(response, field) or (), getattr(rows, field) or (), layout.response)
    return copied(response, **{field: joined})


def refused_rows(request: m.Message, api_key: int, layout: Layout, code: ErrorCode) -> m.Message:
    """A response with a refused row for each row of the request, by the layout's own `refused`."""
    response = m.response_class(APIS[api_key])
    maker = _RowMaker(response, layout, code)
    rows = maker.made(getattr(request, layout.request[0].field), response.SCHEMA.fields, 0)
    return response(**{layout.response[0].field: rows})


def refused_like(rows: m.Message, layout: Layout, code: ErrorCode) -> m.Message:
    """Rows of a response, each refused instead; its names stay."""
    field = layout.response[0].field
    return copied(rows, **{field: [_refused_like(each, layout, 0, code) for each in getattr(rows, field)]})


def copied(struct: Part, **changes: object) -> Part:
    """A shallow copy of a message or a part of one, with other values in some fields."""
    return type(struct)(**{name: changes.get(name, getattr(struct, name)) for name in struct.FIELDS})


def _refused_like(element: m.Struct, layout: Layout, depth: int, code: ErrorCode) -> m.Struct:
    level = layout.response[depth]
    if depth + 1 < len(layout.response):
        field = layout.response[depth + 1].field
        inner = [_refused_like(each, layout, depth + 1, code) for each in getattr(element, field)]
        return copied(element, **{field: inner})
    row = type(element)()
    for name in (level.key, level.id_key, level.only and level.only[0]):
        if name is not None:
            setattr(row, name, getattr(element, name))
    _refuse(row, layout, code)
    return row


def _refuse(row: m.Struct, layout: Layout, code: ErrorCode) -> None:
    for name, value in (layout.refused or {"error_code": None}).items():
        setattr(row, name, code if name.endswith("error_code") else value)


class _RowMaker:
    """Makes rows of a response, refused with an error."""

    def __init__(self, response: type[m.Message], layout: Layout, code: ErrorCode) -> None:
        self._response = response
        self._layout = layout
        self._code = code

    def made(self, elements: Sequence[object], fields: Sequence[Field], depth: int) -> list[m.Struct]:
        """An element of the response's array for each one of the request's; `fields` are those beside the array."""
        asked = self._layout.request[depth]
        level = self._layout.response[depth]
        field = next(each for each in fields if each.name == level.field)
        is_row = depth + 1 == len(self._layout.request)
        made: list[m.Struct] = []
        for element in elements:
            row: m.Struct = getattr(self._response, field.element)()
            setattr(row, str(level.key), element if asked.key is None else getattr(element, asked.key))
            if is_row:
                _refuse(row, self._layout, self._code)
            else:
                inner = getattr(element, self._layout.request[depth + 1].field)
                below = self.made(inner, self._response.SCHEMA.fields_of(field), depth + 1)
                setattr(row, self._layout.response[depth + 1].field, below)
            made.append(row)
        return made


class _Cut:
    """Takes arrays apart, level by level."""

    def __init__(self, levels: tuple[Level, ...], wanted: Wanted, topic_name: TopicName) -> None:
        # Below the last subject that matters, rows stay together.
        deepest = max((depth for depth, level in enumerate(levels) if level.subject in wanted), default=0)
        self._levels = levels[: deepest + 1]
        self._wanted = wanted
        self._topic_name = topic_name
        self.met_null = False

    def apart(self, elements: Sequence[m.Struct], depth: int) -> tuple[list[m.Struct], list[m.Struct]]:
        """The wanted elements of an array, and the others; an element with rows of both kinds is in both."""
        hit: list[m.Struct] = []
        rest: list[m.Struct] = []
        for element in elements:
            if not self._is_wanted(element, self._levels[depth]):
                rest.append(element)
            elif depth + 1 == len(self._levels):
                hit.append(element)
            else:
                self._split_inner(element, depth + 1, hit, rest)
        return hit, rest

    def _split_inner(self, element: m.Struct, depth: int, hit: list[m.Struct], rest: list[m.Struct]) -> None:
        field = self._levels[depth].field
        inner = getattr(element, field)
        if inner is None:
            self.met_null = True
            rest.append(element)
            return
        inner_hit, inner_rest = self.apart(inner, depth)
        if inner_hit:
            hit.append(copied(element, **{field: inner_hit}))
        if inner_rest or not inner_hit:
            rest.append(copied(element, **{field: inner_rest}))

    def _is_wanted(self, element: object, level: Level) -> bool:
        if level.only is not None and getattr(element, level.only[0]) != level.only[1]:
            return False
        if level.subject not in self._wanted:
            return True
        name = element if level.key is None else getattr(element, level.key)
        if not name and level.id_key is not None and getattr(element, level.id_key) != ZERO_TOPIC_ID:
            name = self._topic_name(bytes(getattr(element, level.id_key)))
        wanted = self._wanted[level.subject]
        return wanted is None or name == wanted


def _joined(ours: Sequence[m.Struct], theirs: Sequence[m.Struct], levels: tuple[Level, ...]) -> list[m.Struct]:
    if len(levels) == 1:
        return [*ours, *theirs]
    by_name = {_name_of(element, levels[0]): element for element in ours}
    field = levels[1].field
    for element in theirs:
        name = _name_of(element, levels[0])
        known = by_name.get(name)
        if known is None:
            by_name[name] = element
        else:
            inner = _joined(getattr(known, field), getattr(element, field), levels[1:])
            by_name[name] = copied(known, **{field: inner})
    return list(by_name.values())


def _name_of(element: m.Struct, level: Level) -> tuple[object, bytes]:
    topic_id = b"" if level.id_key is None else bytes(getattr(element, level.id_key))
    return getattr(element, str(level.key)), topic_id


def _schema(api_key: int) -> Schema:
    return m.request_class(APIS[api_key]).SCHEMA


def _subject_of_keys(request: m.Message) -> str | None:
    return SUBJECTS_OF_KEYS.get(request.key_type) if isinstance(request, m.FindCoordinatorRequest) else None
