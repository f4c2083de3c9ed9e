"""What is generated is up to date."""

import pytest

from tests.figures import conditions, figure
from tests.generated import GENERATED, with_block
from tests.rooms import ROOT


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_file_is_up_to_date(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text == GENERATED[name](text), f"{name} is out of date: run make generated"


def test_a_document_without_the_place_for_a_block_is_an_error():
    with pytest.raises(ValueError, match="no <!-- apis -->"):
        with_block("# A document", "apis", "")


PERFORMANCE = """# A page

Taken on 2026-11-25: 2 cores,
Python 3.11.7. Load of the machine before the run: 0.40.

## Produce

| | unit | Kafka | Barnabas | ratio | target |
|-|-|-:|-:|-:|-:|
| 10 B | records/s | 795,756 | 789,889 | **1.05** | ≥ 1 |

## Consume

| | unit | Kafka | Barnabas | ratio | target |
|-|-|-:|-:|-:|-:|
| 1 kB | records/s | 363,636 | 349,563 | **0.93** | ≥ 1 |
"""


def test_a_figure_is_taken_with_its_conditions():
    assert figure(PERFORMANCE, "Consume", "1 kB") == ["records/s", "363,636", "349,563", "**0.93**"]
    assert conditions(PERFORMANCE).splitlines()[0] == "Taken on 2026-11-25: 2 cores,"


@pytest.mark.parametrize(("section", "case"), [("Produce", "1 kB"), ("Start", "ready")])
def test_a_figure_that_no_page_has_is_an_error(section, case):
    with pytest.raises(ValueError, match=f"no row '{case}' in a section '{section}'"):
        figure(PERFORMANCE, section, case)


def test_figures_without_their_conditions_are_an_error():
    with pytest.raises(ValueError, match="Taken on"):
        conditions("# A page\n")
