"""What `make bench` makes of its figures; the measuring itself is no test."""

import pytest

from bench.pairs import COMPILED, Book, Line, table


def line_of(kafka, barnabas, **options):
    line = Line("case", "records/s", **options)
    for theirs, ours in zip(kafka, barnabas, strict=True):
        line.add("Kafka", theirs)
        line.add("Barnabas", ours)
    return line


def test_ratios_are_made_pair_by_pair_and_the_median_decides():
    line = line_of([100, 200, 50], [150, 220, 100], target=1.4)
    assert line.ratios() == pytest.approx([1.5, 1.1, 2.0])
    assert line.verdict() == "met"
    assert line_of([100, 200, 50], [150, 220, 60], target=1.4).verdict() == "missed"


def test_where_less_is_better_the_target_is_an_upper_bound():
    assert line_of([8.0], [1.0], target=1 / 8, higher_is_better=False).verdict() == "met"
    assert line_of([8.0], [1.1], target=1 / 8, higher_is_better=False).verdict() == "missed"


def test_a_failed_run_leaves_out_its_pair_and_no_other():
    line = line_of([100, None, 50], [None, 220, 100], target=1.4)
    assert line.ratios() == [2.0]
    assert line_of([None], [1.0], target=1.0).verdict() == "not measured"


def test_a_table_shows_medians_the_target_and_all_pairs():
    book = Book()
    for figure in (100.0, 110.0):
        book.line("Produce", "10 B", "records/s", target=1.2).add("Kafka", figure)
        book.line("Produce", "10 B", "records/s").add("Barnabas", 2 * figure)
    ((group, lines),) = book.groups()
    assert group == "Produce"
    assert table(lines)[-1] == "| 10 B | records/s | 105 | 210 | **2** | ≥ 1.2 | met | 2.00, 2.00 |"


def test_a_table_has_columns_for_the_compiled_form_where_it_took_part():
    line = line_of([100.0, 110.0], [200.0, 220.0])
    for figure in (300.0, 330.0):
        line.add(COMPILED, figure)
    assert table([line_of([1.0], [1.0]), line])[-1].endswith("| 2.00, 2.00 | 315 | 3 | 3.00, 3.00 |")
    assert table([line_of([1.0], [1.0]), line])[-2].endswith("| 1.00 |  |  |  |")


def test_a_page_of_two_runs_says_of_each_line_where_it_was_measured():
    page = Book()
    for place, ours in ((", one broker", 200.0), (", three brokers", 90.0)):
        book = Book()
        book.line("Produce", "10 B", "records/s").add("Kafka", 100.0)
        book.line("Produce", "10 B", "records/s").add("Barnabas", ours)
        book.failures.append("latency on Kafka")
        book.warm_ups["produce 10 B"] = [1.0]
        page.add_all(book, place)
    ((_, lines),) = page.groups()
    assert [(line.name, line.ratios()) for line in lines] == [
        ("10 B, one broker", [2.0]),
        ("10 B, three brokers", [0.9]),
    ]
    assert page.failures == ["latency on Kafka, one broker", "latency on Kafka, three brokers"]
    assert list(page.warm_ups) == ["produce 10 B, one broker", "produce 10 B, three brokers"]
