"""Files, and parts of documents, that are made from the sources.

`make generated` writes those that are out of date; `test_generated.py` says which are.
"""

import json
import re
from collections.abc import Callable

from barnabas.config.documentation import configuration_page
from barnabas.config.generate import attributes_source
from barnabas.console.metric_page import metrics_page
from barnabas.testing.lab.schema import actions_table, faults_table, schema
from barnabas.wire.apis import APIS
from barnabas.wire.messages import schemas
from barnabas.wire.stubs import stubs
from tests.figures import figures
from tests.references import apis_page, coming_from_page, commands_page, errors_page
from tests.rooms import ROOMS, ROOT, picture, picture_of_packages
from tests.tour import PRODUCE, WAYS, picture_of_the_way, summary, tour


def with_pictures_and_tours(text: str) -> str:
    """The document with pictures of a record's way and of the rooms of each folder, and the functions on these ways."""
    text = with_block(text, "picture of a record's way", picture_of_the_way())
    text = with_block(text, "packages", picture_of_packages())
    for folder in ROOMS:
        text = with_block(text, f"rooms of {folder}", picture(folder))
    for name, way in WAYS.items():
        text = with_block(text, f"way of {name}", tour(way.stops))
    return text


def with_tables_of_the_laboratory(text: str) -> str:
    """The document with what may be asked of the laboratory, and the kinds of faults."""
    return with_block(with_block(text, "actions", actions_table()), "faults", faults_table())


def handlers_table() -> str:
    """One row for each API that is served: its key, its name, the file of its handler."""
    from barnabas.broker.server.dispatch import HANDLERS  # here: it fails while an API lacks its handler

    files = {key: route.handle.__module__.rpartition(".")[2] + ".py" for key, route in sorted(HANDLERS.items())}
    rows = [f"| {key} | {APIS[key].name} | `{file}` |" for key, file in files.items()]
    return "\n".join(["| key | API | file |", "|-|-|-|", *rows])


def with_block(text: str, name: str, content: str) -> str:
    """The text with this between `<!-- name -->` and `<!-- end -->`. ValueError when there is no such place."""
    block = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
    if not block.search(text):
        raise ValueError(f"no <!-- {name} --> ... <!-- end -->")
    return block.sub(lambda match: match[1] + content + match[2], text)


# The file, and what makes its text from the text that it has.
GENERATED: dict[str, Callable[[str], str]] = {
    "wire/messages.pyi": lambda _: stubs(schemas().values()),
    "config/attributes.pyi": lambda _: attributes_source(),
    "broker/handlers/README.md": lambda text: with_block(text, "apis", handlers_table()),
    "docs/lab.md": with_tables_of_the_laboratory,
    "docs/lab.schema.json": lambda _: json.dumps(schema(), indent=1) + "\n",
    "docs/configuration.md": lambda _: configuration_page(),
    "docs/metrics.md": lambda text: with_block(text, "metrics", metrics_page()),
    "docs/coming-from.md": lambda _: coming_from_page(),
    "docs/how-fast.md": lambda text: with_block(text, "figures", figures()),
    "docs/reference/apis.md": lambda _: apis_page(),
    "docs/reference/commands.md": lambda _: commands_page(),
    "docs/reference/errors.md": lambda _: errors_page(),
    "docs/architecture.md": with_pictures_and_tours,
    "README.md": lambda text: with_block(text, "tour", summary(PRODUCE)),
}


def main() -> None:
    """Write what is out of date."""
    for name, make in GENERATED.items():
        before = (ROOT / name).read_text(encoding="utf-8")
        if (after := make(before)) != before:
            (ROOT / name).write_text(after, encoding="utf-8")
            print(name)


if __name__ == "__main__":
    main()
