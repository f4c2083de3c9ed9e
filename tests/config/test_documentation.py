"""The page about configuration says what the tables say."""

from barnabas.config.documentation import configuration_page
from barnabas.config.property import Effect
from barnabas.config.table import BROKER_TABLE, DEVIATIONS, TOPIC_TABLE
from tests.rooms import ROOT


def test_every_property_has_a_row():
    page = configuration_page()
    for name in (*BROKER_TABLE, *TOPIC_TABLE):
        assert f"\n| `{name}` |" in page
    assert all(deviation.reason in page for deviation in DEVIATIONS)


def test_a_row_has_as_many_cells_as_its_head():
    for section in configuration_page().split("\n## ")[1:]:
        rows = [line.replace("\\|", "") for line in section.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1, section.splitlines()[0]


def test_the_page_about_security_gives_a_reason_for_each_property_without_effect():
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    words = ("ssl.", "sasl.", "security.", "authorizer", "quota.", "throttled", "principal.", "connection", "password")
    of_tiered_storage = "remote.log"
    for row in (*BROKER_TABLE.values(), *TOPIC_TABLE.values()):
        is_about_security = any(word in row.name for word in words) and not row.name.startswith(of_tiered_storage)
        if row.effect is not Effect.SERVED and is_about_security:
            assert f"`{row.name}`" in page
