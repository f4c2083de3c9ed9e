"""The configuration table: complete, and consistent in itself."""

import pytest

from barnabas.config.property import format_value, parse_value
from barnabas.config.table import BROKER_TABLE, DEVIATIONS, TOPIC_TABLE

ALL_ROWS = [*BROKER_TABLE.values(), *TOPIC_TABLE.values()]
NOT_KAFKAS = {  # names of properties that Kafka 3.9 does not have; those of its authorizer are not in its table
    "replica.lag.max.messages",
    "group.members.max.bytes",
    "delegation.token.owner.max.bytes",
    "barnabas.http.listener",
    "barnabas.metrics.partitions.max",
    "super.users",
    "allow.everyone.if.no.acl.found",
}


def test_every_property_of_kafka_3_9_has_a_row():
    numbers = (len(BROKER_TABLE.keys() - NOT_KAFKAS), len(TOPIC_TABLE.keys() - NOT_KAFKAS))
    assert numbers == (328, 36), (
        "Kafka 3.9 has 328 properties of brokers and 36 of topics, and all are there: "
        "another one is named in NOT_KAFKAS of tests/config/test_table.py"
    )


@pytest.mark.parametrize("row", ALL_ROWS, ids=lambda row: row.name)
def test_a_default_passes_its_own_check_and_survives_being_printed(row):
    text = format_value(row.default)
    assert text is None or parse_value(row, text) == row.default


@pytest.mark.parametrize("row", ALL_ROWS, ids=lambda row: row.name)
def test_a_property_is_explained_in_one_sentence(row):
    assert row.doc.endswith(".")
    assert len(row.doc) <= 110


def test_a_topic_property_falls_back_to_broker_properties_that_exist():
    synonyms = [synonym for row in TOPIC_TABLE.values() for synonym, _ in row.synonyms]
    assert set(synonyms) <= set(BROKER_TABLE)


def test_a_deviation_names_a_property_and_differs_from_kafkas_default():
    for deviation in DEVIATIONS:
        row = BROKER_TABLE[deviation.name]
        assert deviation.default != row.default
        assert parse_value(row, format_value(deviation.default)) == deviation.default


def test_no_two_properties_share_an_attribute():
    assert len({row.attribute for row in BROKER_TABLE.values()}) == len(BROKER_TABLE)
    assert len({row.attribute for row in TOPIC_TABLE.values()}) == len(TOPIC_TABLE)
