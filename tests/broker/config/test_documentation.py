"""The page about configuration says what the tables say."""

from barnabas.broker.config.documentation import configuration_page
from barnabas.broker.config.table import BROKER_TABLE, DEVIATIONS, TOPIC_TABLE


def test_every_property_has_a_row():
    page = configuration_page()
    for name in (*BROKER_TABLE, *TOPIC_TABLE):
        assert f"\n| `{name}` |" in page
    assert all(deviation.reason in page for deviation in DEVIATIONS)


def test_a_row_has_as_many_cells_as_its_head():
    for section in configuration_page().split("\n## ")[1:]:
        rows = [line.replace("\\|", "") for line in section.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) == 1, section.splitlines()[0]
