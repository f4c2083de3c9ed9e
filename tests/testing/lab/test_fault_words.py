"""Every fault of the engine, in Python and over HTTP: the same words, the same errors, one schema."""

import inspect
from contextlib import suppress

import jsonschema
import pytest

from barnabas.testing import FaultError, LocalBroker, LocalCluster
from barnabas.testing.faults.faults import Faults
from barnabas.testing.faults.matching import Matchers
from barnabas.testing.lab.control import Laboratory
from barnabas.testing.lab.fault_words import KINDS, MATCHERS
from barnabas.testing.lab.schema import schema
from barnabas.testing.lab.values import message_from
from barnabas.wire import messages as m
from tests.testing.client import Client
from tests.testing.lab.http import ask, done

NOT_KINDS = {
    "names_fetched_rows",
    "clear",
    "check",
    "remove",
    "close",
    "until",
    "sightings",
    "choose",
    "fire",
    "hitting",
    "may_hit",
}


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(1, topics={"t": (1, 1)}) as cluster:
        yield cluster


def in_python(faults, kind, body):
    """The same fault by the call in Python."""
    arguments = {word: value for word, value in body.items() if word != kind}
    if kind == "answer":
        arguments["response"] = message_from(getattr(m, f"{body[kind]}Response"), body["response"])
    return getattr(faults, kind)(body[kind], **arguments)


def is_of_schema(body):
    return jsonschema.Draft202012Validator(schema()).is_valid(body)


def test_the_table_has_each_method_of_faults_with_its_arguments():
    methods = {name for name in vars(Faults) if not name.startswith("_")} - NOT_KINDS
    kinds = {name for name in methods if inspect.isfunction(getattr(Faults, name))}
    assert kinds == KINDS.keys()
    for name, kind in KINDS.items():
        arguments = list(inspect.signature(getattr(Faults, name)).parameters)
        assert arguments[2:-1] == [word.name for word in kind.more], name
    assert [word.name for word in MATCHERS] == list(Matchers.__annotations__)


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_is_the_same_fault_in_both(cluster, lab, kind):
    body = KINDS[kind].example
    assert is_of_schema(body)
    answer = done(lab, "POST", "/v1/faults", body)
    assert answer["fault"] == str(in_python(cluster.faults, kind, body))
    assert answer["fired"] == 0


FIRED = [
    {"fail": "Metadata", "error": "LEADER_NOT_AVAILABLE", "topic": "t"},
    {"drop": "Metadata"},
    {"drop": "Metadata", "when": "midway"},
    {"delay": "Metadata", "seconds": 0.01},
    {"hang": "Metadata"},
    {"throttle": "Metadata", "ms": 1},
    {"stale": "Metadata"},
    {"corrupt": "Produce"},
    {"duplicate": "Produce"},
    {"answer": "Metadata", "response": {"brokers": [{"node_id": 4711, "host": "castle.example", "port": 9}]}},
    {"as_kafka": "2.8"},
]


class OverHttp:
    """The engine as other languages reach it."""

    def __init__(self, cluster, lab):
        self._lab = lab

    def set(self, body):
        return done(self._lab, "POST", "/v1/faults", body)["id"]

    def wait(self, fault):
        """How often it has fired, and how many requests it remembers."""
        waited = done(self._lab, "GET", f"/v1/faults/{fault}/wait?times=1&seconds=10")
        return waited["fired"], len(waited["seen"])

    def remove(self, fault):
        assert done(self._lab, "DELETE", f"/v1/faults/{fault}")["is_removed"]

    def fired(self, fault):
        return done(self._lab, "GET", f"/v1/faults/{fault}")["fired"]

    def missed(self):
        return done(self._lab, "POST", "/v1/reset")["missed"]


class InPython:
    """The same engine by its own calls."""

    def __init__(self, cluster, lab):
        self._faults = cluster.faults

    def set(self, body):
        (kind,) = (word for word in body if word in KINDS)
        return in_python(self._faults, kind, body)

    def wait(self, fault):
        fault.wait(1, 10)
        return fault.fired, len(fault.seen)

    def remove(self, fault):
        fault.remove()

    def fired(self, fault):
        return fault.fired

    def missed(self):
        self._faults.check()
        return []


def test_every_kind_of_fault_is_fired():
    assert {kind for body in FIRED for kind in body if kind in KINDS} == KINDS.keys()


@pytest.mark.parametrize("engine", [OverHttp, InPython])
@pytest.mark.parametrize("body", FIRED, ids=lambda body: " ".join(map(str, body.values()))[:40])
def test_each_is_set_waited_for_and_removed(cluster, lab, body, engine):
    by = engine(cluster, lab)
    assert is_of_schema(body)
    fault = by.set(body)
    with Client(cluster.bootstrap_servers) as client:
        if "corrupt" in body or "duplicate" in body:
            client.send_off(client.produce_request("t", b"v"))
        elif "as_kafka" in body:
            client.request(m.ApiVersionsRequest(), 0)
        else:
            asked = m.MetadataRequest.MetadataRequestTopic(name="t")
            client.send_off(m.MetadataRequest(topics=[asked]))
        assert by.wait(fault) == (1, 1)
        by.remove(fault)
        with suppress(OSError):
            client.response()

    # The next request is not hit.
    with Client(cluster.bootstrap_servers) as client:
        client(m.MetadataRequest(topics=None))
    assert by.fired(fault) == 1
    assert by.missed() == []


WRONG = [
    ({"fail": "Prodce", "error": "REQUEST_TIMED_OUT"}, "no API is called 'Prodce'; is 'Produce' meant?"),
    ({"fail": "Produce", "error": "REQUEST_TIMEOUT"}, "no error is called 'REQUEST_TIMEOUT'; is 'REQUEST_TIMED_OUT'"),
    ({"fail": "Produce", "error": "NONE"}, "NONE is no error"),
    ({"drop": "Fetch", "when": "soon"}, "drop: 'before', 'after' or 'midway', not 'soon'"),
    ({"drop": "Fetch", "topik": "t"}, "no matcher is called 'topik'; is 'topic' meant?"),
    ({"drop": "Fetch", "nth": 0}, "nth: a number from 1 on, not 0"),
    ({"drop": "Fetch", "times": "2"}, "times: a number from 1 on, not '2'"),
    ({"drop": "Produce", "group": "g"}, "Produce has no group: it can be narrowed by partition, topic"),
    ({"drop": "Produce", "partition": 0}, "partition: of which topic? Give `topic` as well"),
    ({"drop": "Fetch", "chance": 2}, "chance: a number from 0 to 1, not 2"),
    ({"drop": "Fetch", "seed": 7}, "seed: it is for `chance`, which is missing"),
    ({"delay": "Fetch", "seconds": "long"}, "delay: a number of seconds, not 'long'"),
    ({"delay": "Fetch", "seconds": 10**400}, "delay: a number of seconds, not 1000"),
    ({"throttle": "Produce", "ms": 0}, "throttle: a number of milliseconds from 1 to 2147483647, not 0"),
    ({"throttle": "Produce", "ms": 1 << 31}, "throttle: a number of milliseconds from 1 to 2147483647, not 2147483648"),
    ({"drop": "Fetch", "when": ["after"]}, "drop: 'before', 'after' or 'midway', not ['after']"),
    ({"as_kafka": ["3.9"]}, "as_kafka: one of 2.8"),
    ({"fail": ["Produce"], "error": 6}, "no API that is served has the key ['Produce']"),
    ({"fail": "Produce", "error": [6]}, "no error has the code [6]"),
    ({"corrupt": "Metadata"}, "corrupt: of Fetch or Produce, not Metadata"),
    ({"as_kafka": "2.9"}, "2.9"),
]
# What only the engine knows: a schema has no limits of numbers, and does not know which API names what.
OF_THE_ENGINE = {"nth", "group", "partition", "chance", "seed", "ms"}


@pytest.mark.parametrize(("body", "text"), WRONG, ids=lambda each: str(each)[:50])
def test_an_error_says_the_same_in_both(cluster, lab, body, text):
    status, answer = ask(lab, "POST", "/v1/faults", body)
    assert (status, text in answer["error"]) == (400, True), answer
    with pytest.raises(FaultError) as raised:
        in_python(cluster.faults, next(iter(body)), body)
    assert str(raised.value) == answer["error"]
    is_number_of_type = isinstance(body.get("seconds"), int)
    assert is_of_schema(body) == (bool(OF_THE_ENGINE & body.keys()) or is_number_of_type)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"fail": "Produce",\n "error" 7}', "the body is no JSON: line 2, column 10"),
        (b"[1]", "the body has to be a JSON object, and is list"),
        ({}, "the request names no kind of fault: one of fail, drop"),
        ({"fial": "Produce"}, "the request names no kind of fault; is 'fail' meant?"),
        ({"fail": "Produce", "drop": "Fetch"}, "one fault at a time, not fail and drop"),
        ({"fail": "Produce"}, "fail: error is missing (the error)"),
        ({"fail": "Produce", "error": 6, "after": "yes"}, "after: true or false, not 'yes'"),
        ({"drop": "Fetch", "chance": 0.5, "seed": "x"}, "seed: a whole number, not 'x'"),
        # A name that a program has lost must not make a fault of all requests.
        ({"drop": "Fetch", "topic": None}, "topic: a text, not None"),
        ({"drop": "Fetch", "client_id": None}, "client_id: a text, not None"),
        ({"drop": "Fetch", "nth": None}, "nth: a whole number, not None"),
        ({"drop": "Fetch", "times": None}, "times: a whole number, not None"),
        ({"answer": "Heartbeat", "response": {"eror_code": 1}}, "has no field 'eror_code'; is 'error_code' meant?"),
        ({"answer": "Heartbeat", "response": {"error_code": 1 << 20}}, ".error_code: a value of Kafka's type int16"),
        ({"answer": "Metadata", "response": {"brokers": [1]}}, "MetadataResponse.brokers[0]: an object, not 1"),
        (
            {"answer": "Metadata", "response": {"cluster_id": "\ud800"}},
            "cluster_id: a value of Kafka's type string",
        ),
    ],
    ids=lambda each: str(each)[:50],
)
def test_a_body_that_is_no_fault_is_refused_with_the_reason(lab, body, text):
    status, answer = ask(lab, "POST", "/v1/faults", body)
    assert (status, text in answer["error"]) == (400, True), answer
    assert done(lab, "GET", "/v1/faults") == {"faults": []}
    if isinstance(body, dict):
        assert not is_of_schema(body) or "response" in body


def test_a_fault_that_does_not_fire_in_time_is_a_conflict(lab):
    fault = done(lab, "POST", "/v1/faults", {"drop": "Fetch"})
    status, answer = ask(lab, "GET", f"/v1/faults/{fault['id']}/wait?seconds=0.01")
    assert status == 409
    assert answer["error"].startswith("drop(Fetch, before) fired 0 of 1 times within 0.01 s")
    assert done(lab, "POST", "/v1/reset")["missed"] == ["drop(Fetch, before)"]
    assert ask(lab, "GET", f"/v1/faults/{fault['id']}")[0] == 404


def test_a_fault_that_was_set_in_python_is_there_as_well(cluster, lab):
    fault = cluster.faults.hang("JoinGroup")
    (row,) = done(lab, "GET", "/v1/faults")["faults"]
    assert row["fault"] == str(fault)


def test_a_single_broker_has_faults_and_requests(lab):
    with LocalBroker(topics=["t"]) as broker, Laboratory(broker) as single:
        done(single, "POST", "/v1/faults", {"throttle": "Metadata", "ms": 1})
        with Client(broker.bootstrap_servers) as client:
            client(m.MetadataRequest(topics=None))
        (request,) = done(single, "GET", "/v1/requests?api=Metadata&wait=5")["requests"]
        assert request["fault"] == "throttle(Metadata, 1 ms)"
        assert ask(single, "GET", "/v1/brokers")[0] == 409
