"""An audit for people: tables on a terminal, and one HTML file with plots in it.

The page needs nothing beside itself: plots are SVG inside it, and there are no scripts. matplotlib, Jinja and rich come
with the extra `spark` and are imported when a report is made.
"""

import io
from collections.abc import Callable, Sequence
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING

from barnabas.pipeline.findings import KINDS, Audit, Share

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_OF_A_FILE = 200  # in columns: names of replicas are paths, and stay in one piece
PLOT_INCHES = (9.0, 2.6)
COLOURS = {
    "lost": "#b2182b",
    "duplicated": "#ef8a62",
    "reordered": "#d6b656",
    "phantom": "#7b3294",
    "diverging": "#2166ac",
    "corrupt": "#1a1a1a",
    "gap": "#67a9cf",
    "acked": "#1b7837",
    "failed": "#b2182b",
    "read": "#2166ac",
}


def print_audit(audit: Audit) -> None:
    """Tables on standard output: what was looked at, what is wrong, the first of each kind."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = WIDTH_OF_A_FILE
    held = Table("replica", "partition", "records", "control", "offsets", title="What lies there")
    for row in audit.held:
        offsets = f"{row.first_offset} to {row.last_offset}"
        held.add_row(row.replica, f"{row.topic}-{row.partition}", str(row.records), str(row.control_records), offsets)
    console.print(held)
    if audit.events:
        said = Table("event", "lines", title="What brokers answered")
        for event, count in audit.events.items():
            said.add_row(event, str(count))
        console.print(said)

    if audit.counts:
        wrong = Table("kind", "partition", "findings", title="What is wrong")
        for each in audit.counts:
            wrong.add_row(each.kind, f"{each.topic}-{each.partition}", str(each.findings))
        console.print(wrong)
        for finding in audit.examples:
            where = f"{finding.topic}-{finding.partition}"
            at = "" if finding.offset is None else f" offset {finding.offset}"
            console.print(f"{finding.kind}: {where}{at}: {finding.text}", markup=False, highlight=False)

    if audit.unreadable_lines:
        console.print(f"{audit.unreadable_lines} lines of the ledgers are no JSON and were left out")
    console.print(audit.verdict(), highlight=False)


def make_page(audit: Audit, title: str) -> str:
    """The audit as one HTML file."""
    from jinja2 import Environment

    template = Environment(autoescape=True).from_string(
        files("barnabas.pipeline").joinpath("report.html").read_text(encoding="utf-8")
    )
    plots = [
        ("Findings over offsets", _bars(audit.spread, "offset", "findings")),
        ("What brokers answered, over time", _bars(audit.timeline, "seconds since the first event", "events")),
        ("Records by replica and partition", _records(audit)),
    ]
    page: str = template.render(
        title=title,
        audit=audit,
        kinds=KINDS,
        totals=audit.totals(),
        colours=COLOURS,
        plots=[(name, svg) for name, svg in plots if svg],
    )
    return page


def _bars(shares: Sequence[Share], along: str, up: str) -> str:
    """Stacked bars, one colour a kind; nothing without any."""
    if not shares:
        return ""
    starts = sorted({share.start for share in shares})
    width = min((later - earlier for earlier, later in pairwise(starts)), default=1.0)

    def draw(axes: "Axes") -> None:
        bottoms = dict.fromkeys(starts, 0)
        for kind in dict.fromkeys(share.kind for share in shares):
            mine = [share for share in shares if share.kind == kind]
            under = [bottoms[share.start] for share in mine]
            heights = [share.number for share in mine]
            where = [share.start for share in mine]
            axes.bar(where, heights, width, under, align="edge", label=kind, color=COLOURS[kind])
            for share in mine:
                bottoms[share.start] += share.number
        axes.set_xlabel(along)
        axes.set_ylabel(up)
        axes.legend(frameon=False, fontsize=8)

    return _plot(draw)


def _records(audit: Audit) -> str:
    """How many records each replica has of each partition."""
    if not audit.held:
        return ""
    places = list(dict.fromkeys(f"{each.topic}-{each.partition}" for each in audit.held))
    replicas = list(dict.fromkeys(each.replica for each in audit.held))

    def draw(axes: "Axes") -> None:
        width = 0.8 / len(replicas)
        for index, replica in enumerate(replicas):
            mine = {f"{each.topic}-{each.partition}": each.records for each in audit.held if each.replica == replica}
            where = [at + index * width for at in range(len(places))]
            axes.bar(where, [mine.get(place, 0) for place in places], width, align="edge", label=replica)
        axes.set_xticks([at + 0.4 for at in range(len(places))], places, fontsize=7)
        axes.set_ylabel("records")
        axes.legend(frameon=False, fontsize=8, title="replica")

    return _plot(draw)


def _plot(draw: "Callable[[Axes], None]") -> str:
    """What `draw` makes of an empty plot, as SVG to be put into a page."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=PLOT_INCHES, layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    draw(axes)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
