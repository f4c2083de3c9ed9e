"""What the laboratory does to brokers, over HTTP."""

import threading
import time

import pytest

from barnabas.testing import FaultMissed, LocalBrokerError, LocalCluster
from barnabas.testing.lab import actions
from barnabas.testing.lab.control import Laboratory
from barnabas.testing.lab.table import ACTIONS
from barnabas.wire import messages as m
from tests.testing.client import Client
from tests.testing.lab.http import ask, done


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(3, topics={"t": (2, 3)}) as cluster:
        yield cluster


def leader_client(cluster, topic="t", partition=0):
    return Client(cluster.brokers[cluster.leader(topic, partition)].bootstrap_servers)


def test_a_leader_is_killed_and_started_again(cluster, lab):
    first = done(lab, "GET", "/v1/partitions/t/0")["leader"]
    assert done(lab, "POST", f"/v1/brokers/{first}/kill")["is_running"] is False
    others = ",".join(str(each) for each in cluster.brokers if each != first)
    found = done(lab, "GET", f"/v1/partitions/t/0/wait?isr={others}&seconds=10")
    assert found["leader"] != first
    status, answer = ask(lab, "POST", f"/v1/brokers/{first}/kill")
    assert (status, answer["error"]) == (409, f"broker {first} does not run")
    assert done(lab, "POST", f"/v1/brokers/{first}/start")["is_running"] is True
    done(lab, "GET", "/v1/partitions/t/0/wait?isr=1,2,3&seconds=10")


def test_a_broker_is_stopped_restarted_frozen_and_thawed(cluster, lab):
    assert done(lab, "POST", "/v1/brokers/2/stop")["is_running"] is False
    assert done(lab, "POST", "/v1/brokers/2/restart")["is_running"] is True
    assert done(lab, "POST", "/v1/brokers/2/freeze")["is_frozen"] is True
    rows = done(lab, "GET", "/v1/brokers")["brokers"]
    assert [(row["id"], row["is_frozen"]) for row in rows] == [(1, False), (2, True), (3, False)]
    assert done(lab, "POST", "/v1/brokers/2/thaw")["is_frozen"] is False


def test_a_link_is_cut_and_healed(cluster, lab):
    done(lab, "POST", "/v1/cut", {"sender": "clients", "receiver": 1, "both": False})
    with Client(cluster.brokers[1].bootstrap_servers) as client:
        client.send_off(m.MetadataRequest(topics=None))
        with pytest.raises(FaultMissed):
            cluster.requests("Metadata").wait(seconds=0.05)
        done(lab, "POST", "/v1/heal")
        assert client.response().brokers
    status, answer = ask(lab, "POST", "/v1/cut", {"sender": "clients", "receiver": "store"})
    assert (status, answer["error"]) == (409, "cut: there is no link between 'clients' and 'store'")


def test_a_leader_is_moved(cluster, lab):
    to = next(each for each in cluster.brokers if each != cluster.leader("t", 1))
    assert done(lab, "POST", "/v1/partitions/t/1/leader", {"to": to})["leader"] == to
    assert ask(lab, "POST", "/v1/partitions/t/1/leader", {})[1] == {"error": "to: it is missing (the id of a broker)"}


def test_the_time_jumps_and_stands_still(cluster, lab):
    before = done(lab, "GET", "/v1/clock")["now_ms"]
    after = done(lab, "POST", "/v1/clock", {"minutes": 2, "stopped": True})
    assert after["now_ms"] - before >= 120_000
    assert done(lab, "GET", "/v1/clock") == after
    assert done(lab, "POST", "/v1/clock", {"stopped": False})["is_stopped"] is False
    status, answer = ask(lab, "POST", "/v1/clock", {"days": -1})
    assert (status, "time goes forward only" in answer["error"]) == (409, True)
    assert ask(lab, "POST", "/v1/clock", {})[0] == 400


def test_a_group_is_seen_rebalanced_and_emptied(cluster, lab):
    coordinator = done(lab, "GET", "/v1/groups/a%2Fb")["coordinator"]
    with Client(cluster.brokers[coordinator].bootstrap_servers) as client:
        member_id = client.join("a/b")
        found = done(lab, "GET", "/v1/groups/a%2Fb/wait?state=Stable&members=1")
        assert [member["member_id"] for member in found["members"]] == [member_id]
        assert done(lab, "POST", "/v1/groups/a%2Fb/rebalance")["state"] == "PreparingRebalance"
        assert done(lab, "POST", "/v1/groups/a%2Fb/evict", {"member": member_id})["state"] == "Empty"
    status, answer = ask(lab, "GET", "/v1/groups/a%2Fb/wait?members=1&seconds=0.01")
    assert (status, answer["error"]) == (409, "not within 0.01 s: group 'a/b' is Empty with 0 members")
    to = coordinator % 3 + 1
    assert done(lab, "POST", "/v1/groups/a%2Fb/coordinator", {"to": to})["coordinator"] == to


def test_records_are_read_from_the_leader_of_each_partition(cluster, lab):
    assert done(lab, "POST", "/v1/topics", {"name": "read", "partitions": 2})["name"] == "read"
    done(lab, "POST", "/v1/partitions/read/0/leader", {"to": 1})
    done(lab, "POST", "/v1/partitions/read/1/leader", {"to": 2})
    for partition, value in enumerate((b"to the castle", b"\xff")):
        with leader_client(cluster, "read", partition) as client:
            client.produce("read", value, partition=partition)
    first, second = done(lab, "GET", "/v1/topics/read/records")["records"]
    assert (first["partition"], first["offset"], first["value"]) == (0, 0, "to the castle")
    assert (second["partition"], second["value_base64"]) == (1, "/w==")
    assert done(lab, "GET", "/v1/topics/read/records?partition=1")["records"] == [second]


def test_more_records_than_are_shown_are_not_read(cluster, lab, monkeypatch):
    done(lab, "POST", "/v1/topics", {"name": "many"})
    with leader_client(cluster, "many") as client:
        client.produce("many", *(b"v" for _ in range(5)))
    monkeypatch.setattr(actions, "RECORDS_MAX", 4)
    status, answer = ask(lab, "GET", "/v1/topics/many/records")
    assert (status, answer["error"]) == (409, "topic 'many' has 5 records, and 4 are shown at most")


def test_a_log_loses_its_end(cluster, lab):
    with leader_client(cluster) as client:
        client.produce("t", b"v")
    assert done(lab, "POST", "/v1/brokers/1/lose", {"topic": "t", "records": 1}) == {"lost": 1}


def test_a_disk_is_filled_and_healed(cluster, lab):
    done(lab, "POST", "/v1/brokers/3/disk/slow", {"seconds": 0.0})
    done(lab, "POST", "/v1/brokers/3/disk/fill", {"left_bytes": 1 << 30})
    done(lab, "POST", "/v1/brokers/3/disk/fail")
    done(lab, "POST", "/v1/brokers/3/disk/heal")
    assert ask(lab, "POST", "/v1/brokers/3/disk/fill", {"left_bytes": -1})[0] == 409


def test_a_producer_is_forgotten_and_a_transaction_fenced(cluster, lab):
    with Client(cluster.brokers[cluster.coordinator(transactional_id="x")].bootstrap_servers) as client:
        client(m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000))
    done(lab, "POST", "/v1/transactions/x/fence")
    assert isinstance(done(lab, "GET", "/v1/brokers/1/producers")["ids"], list)
    status, answer = ask(lab, "POST", "/v1/brokers/1/producers/4711/forget")
    assert (status, "no producer 4711 is known" in answer["error"]) == (409, True)


def test_requests_are_waited_for(cluster, lab):
    last = done(lab, "GET", "/v1/requests")["last"]
    found = []
    asks = threading.Thread(
        target=lambda: found.append(done(lab, "GET", f"/v1/requests?api=Metadata&after={last}&wait=10"))
    )
    asks.start()
    with leader_client(cluster) as client:
        client(m.MetadataRequest(topics=None))
    asks.join()
    (request,) = found[0]["requests"]
    assert (request["api"], request["client_id"], request["outcome"]) == ("Metadata", "test", "answered")
    assert [row["name"] for row in request["response"]["topics"] if row["name"] == "t"] == ["t"]
    assert done(lab, "GET", f"/v1/requests?after={found[0]['last']}")["requests"] == []


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/v1/requests?api=Produse", 400, "no API is called 'Produse'; is 'Produce' meant?"),
        ("/v1/requests?wait=1000", 400, "wait: a number of seconds from 0 to 60, not 1000.0"),
        ("/v1/requests?wait=long", 400, "wait: a number, not 'long'"),
        ("/v1/requests?wate=1", 400, "no word is called 'wate'; is 'wait' meant?"),
        ("/v1/brokers/9/producers", 404, "there is no broker 9, only [1, 2, 3]"),
        ("/v1/brokers/one/producers", 400, "broker: a whole number, not 'one'"),
        ("/v1/partitions/none/0", 404, "there is no partition 0 of a topic 'none'"),
        ("/v1/topics/none/records", 404, "there is no topic 'none'"),
        ("/v1/faults/f999", 404, "there is no fault 'f999'"),
        ("/v1/groups/g/wait?state=Stabel", 409, "state: one of"),
        ("/v1/nothing", 404, "there is nothing at /v1/nothing"),
    ],
)
def test_what_is_asked_wrongly_is_said(lab, path, status, text):
    answered, body = ask(lab, "GET", path)
    assert (answered, text in body["error"]) == (status, True), body


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/v1/topics", {"name": "castle", "partitions": 1 << 31}, "partitions: a number up to 2147483647"),
        ("/v1/topics", {"name": "castle", "replicas": 10**400}, "replicas: a number up to 32767"),
        ("/v1/topics", {"name": "\ud800"}, "cannot be created"),
        ("/v1/clock", {"seconds": 10**400}, "more than 36500 days"),
        ("/v1/brokers/1/disk/slow", {"seconds": 10**400}, "seconds: a number from 0 to 86400"),
    ],
)
def test_numbers_and_texts_beyond_all_measure_are_said(cluster, lab, path, body, text):
    status, answer = ask(lab, "POST", path, body)
    assert (status, text in answer["error"]) == (409, True), answer


def test_a_page_of_another_site_changes_nothing(cluster, lab):
    body = {"drop": "Metadata"}
    assert ask(lab, "POST", "/v1/faults", body, origin="http://castle.example")[0] == 403
    assert ask(lab, "POST", "/v1/faults", body, host="castle.example")[0] == 421
    assert ask(lab, "POST", "/v1/faults", body, content_type="text/plain")[0] == 415
    assert done(lab, "GET", "/v1/faults") == {"faults": []}


def test_it_listens_on_loopback_only(cluster):
    with pytest.raises(LocalBrokerError, match=r"0\.0\.0\.0:0: the laboratory listens on loopback only"):
        Laboratory(cluster, "0.0.0.0:0")
    with pytest.raises(LocalBrokerError, match="'castle' is no host:port"):
        Laboratory(cluster, "castle")


def test_a_port_that_is_taken_is_said(cluster, lab):
    port = lab.url.rpartition(":")[2].strip("/")
    with (
        pytest.raises(LocalBrokerError, match=rf"cannot listen on 127\.0\.0\.1:{port}: "),
        Laboratory(cluster, f"127.0.0.1:{port}"),
    ):
        pass


def test_the_end_of_a_laboratory_ends_what_waits(cluster):
    answers = []
    with Laboratory(cluster) as lab:
        asks = threading.Thread(target=lambda: answers.append(ask_until_closed(lab)))
        asks.start()
        done(lab, "GET", "/v1/brokers")
    asks.join(5)
    assert not asks.is_alive()


@pytest.mark.parametrize("path", ["/v1/faults/f1/wait", "/v1/groups/g/wait", "/v1/partitions/t/0/wait"])
def test_its_end_waits_for_no_action(cluster, path):
    wanted = {"/v1/faults/f1/wait": "times=1", "/v1/groups/g/wait": "members=7"}.get(path, "leader=7")
    with Laboratory(cluster) as lab:
        done(lab, "POST", "/v1/faults", {"fail": "Heartbeat", "error": 27})
        asks = threading.Thread(target=lambda: ask_until_closed(lab, f"{path}?seconds=8&{wanted}"))
        asks.start()
        done(lab, "GET", "/v1/brokers")
        began = time.monotonic()
    assert time.monotonic() - began < 4
    asks.join(5)
    assert not asks.is_alive()
    cluster.faults.clear()


def test_of_two_that_start_a_broker_at_once_one_hears_that_it_runs(cluster, lab):
    done(lab, "POST", "/v1/brokers/2/kill")
    found = []
    both = [threading.Thread(target=lambda: found.append(ask(lab, "POST", "/v1/brokers/2/start"))) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert sorted(found, key=lambda each: each[0]) == [
        (200, {"id": 2, "is_running": True, "is_frozen": False}),
        (409, {"error": "broker 2 runs already"}),
    ]


def ask_until_closed(lab, path="/v1/requests?api=Heartbeat&wait=60"):
    try:
        return ask(lab, "GET", path)
    except OSError as error:
        return error


def test_each_action_has_its_words_once():
    for action in ACTIONS:
        names = [word.name for word in (*action.words, *action.path_words)]
        assert len(names) == len(set(names)), action.path
