"""What a scrape of a broker in memory shows: each family beside what was done to the broker."""

import h11
import pytest
import trio

from barnabas.console.exposition import exposition, wants_openmetrics
from barnabas.console.metric_table import METRICS, Kind
from barnabas.console.metrics import SCRAPE_SECONDS, SCRAPES_MAX
from barnabas.console.samples import LABEL_CHARACTERS_MAX, escaped, labels_of
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.world.net import ConnectionLost
from barnabas.world.tally import LATEST_MAX
from tests.broker.clusters import cluster, controller_of, create_topic, leader_of, until
from tests.broker.harness import Machine, with_topic
from tests.broker.memnet import PIPE_BYTES
from tests.broker.requests import batch_of, fetch_request
from tests.console.page import END_OF_CHUNKS, Page, read_answer, read_to_the_end, request_bytes
from tests.console.scraped import metrics_of, parsed, scrape

TOPIC_METRICS = "kafka_server_brokertopicmetrics_"
REQUEST_METRICS = "kafka_network_requestmetrics_"


async def test_a_topic_is_counted_alone_and_in_the_sum(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await client.create_topic("other")
    await client.produce("t", batch_of(b"a", b"b"))
    await client.produce("other", batch_of(b"c"))
    await client.fetch("t")
    found = await scrape(machine.broker)
    assert found.value(f"{TOPIC_METRICS}messagesin_total", topic="t") == 2
    assert found.value(f"{TOPIC_METRICS}messagesin_total") == 3
    assert found.value(f"{TOPIC_METRICS}bytesout_total", topic="t") == len(batch_of(b"a", b"b"))
    assert found.value(f"{TOPIC_METRICS}totalproducerequests_total", topic="other") == 1
    assert found.types[f"{TOPIC_METRICS}messagesin_total"] == "counter"

    await client.delete_topic("t")
    await until(lambda: len(machine.broker.replicas) == 1)
    found = await scrape(machine.broker)
    assert found.value(f"{TOPIC_METRICS}messagesin_total", topic="t") is None
    assert found.value(f"{TOPIC_METRICS}messagesin_total") == 3, "a counter never falls"


async def test_requests_are_counted_by_version_and_error_with_their_times(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await client.produce("t", batch_of(b"a"), version=9)
    await client.ask(fetch_request([("t", 0, 1)], min_bytes=1, max_wait_ms=2000), 12)
    await client.produce("missing", batch_of(b"a"), version=9)
    found = await scrape(machine.broker)
    assert found.value(f"{REQUEST_METRICS}requests_total", request="Produce", version=9) == 2
    assert found.value(f"{REQUEST_METRICS}errors_total", request="Produce", error="NONE") == 1
    unknown = found.value(f"{REQUEST_METRICS}errors_total", request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION")
    assert unknown == 1
    assert found.value(f"{REQUEST_METRICS}totaltimems_count", request="Fetch") == 1
    assert found.value(f"{REQUEST_METRICS}totaltimems_count", request="FetchConsumer") == 1
    assert found.value(f"{REQUEST_METRICS}errors_total", request="Fetch", error="NONE") == 2
    assert found.value(f"{REQUEST_METRICS}errors_total", request="FetchConsumer", error="NONE") is None
    waited = found.value(f"{REQUEST_METRICS}remotetimems", request="Fetch", quantile="0.99")
    assert waited == pytest.approx(2000, rel=0.25)
    assert found.value(f"{REQUEST_METRICS}localtimems", request="Fetch", quantile="0.99") < 1
    for part in ("requestqueuetimems", "responsequeuetimems", "responsesendtimems", "throttletimems"):
        assert found.value(f"{REQUEST_METRICS}{part}", request="Fetch", quantile="0.50") == 0
        assert found.value(f"{REQUEST_METRICS}{part}_count", request="Fetch") == 1
    assert found.value("barnabas_request_seconds_count", request="Fetch") == 1
    assert found.value("barnabas_request_seconds_bucket", request="Fetch", le="1.04858") == 0
    assert found.value("barnabas_request_seconds_bucket", request="Fetch", le="4.1943") == 1
    assert found.value("barnabas_request_seconds_sum", request="Fetch") == pytest.approx(2, abs=0.01)


async def test_fetches_of_followers_are_another_kind_of_request(nursery, autojump_clock):
    async with cluster(nursery, 2) as machines:
        await create_topic(await machines[0].connect(), "t", [1, 2])
        one = await leader_of(machines, "t")
        await (await one.connect()).produce("t", batch_of(b"a"))
        found = await scrape(one.broker)
        followers = found.value(f"{REQUEST_METRICS}totaltimems_count", request="FetchFollower")
        assert followers > 0
        assert found.value(f"{REQUEST_METRICS}totaltimems_count", request="Fetch") == followers
        assert found.value(f"{REQUEST_METRICS}totaltimems_count", request="FetchConsumer") is None
        assert found.value(f"{TOPIC_METRICS}replicationbytesout_total") == len(batch_of(b"a"))


async def test_connections_and_their_software_are_counted_by_listener(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.ask(m.ApiVersionsRequest(client_software_name="castle-go", client_software_version="1.2"), 3)
    listener = {"listener": "PLAINTEXT", "networkProcessor": "0"}
    software = {"clientSoftwareName": "castle-go", "clientSoftwareVersion": "1.2"}
    found = await scrape(machine.broker)
    prefix = "kafka_server_socket_server_metrics_"
    assert found.value(f"{prefix}connection_count", **listener) == 1
    assert found.value(f"{prefix}connection_creation_total", **listener) == 1
    assert found.value(f"{prefix}connections_software", **software, **listener) == 1

    nameless = await machine.connect()
    await nameless.ask(m.ApiVersionsRequest(), 0)
    unknown = {"clientSoftwareName": "unknown", "clientSoftwareVersion": "unknown"}
    assert (await scrape(machine.broker)).value(f"{prefix}connections_software", **unknown, **listener) == 1
    assert found.value("barnabas_connections_refused_total", listener="PLAINTEXT") == 0
    assert found.value("kafka_network_socketserver_memorypoolavailable") > 0


async def test_the_sizes_of_requests_have_quantiles_a_sum_and_a_count(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    for _ in range(LATEST_MAX + 10):
        await client.produce("t", batch_of(b"a"), version=9)
    await client.produce("t", batch_of(bytes(10_000)), version=9)
    found = await scrape(machine.broker)
    sizes = f"{REQUEST_METRICS}requestbytes"
    assert found.value(f"{sizes}_count", request="Produce") == LATEST_MAX + 11
    smallest = found.value(sizes, request="Produce", quantile="0.50")
    largest = found.value(sizes, request="Produce", quantile="0.999")
    assert len(batch_of(b"a")) < smallest < 200
    assert largest == pytest.approx(10_100, rel=0.25)
    whole = found.value(f"{sizes}_sum", request="Produce")
    assert whole == pytest.approx(smallest * (LATEST_MAX + 10) + largest, rel=0.25)


async def test_rates_begin_with_the_first_scrape(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    for _ in range(50):
        await machine.connect()
    counted = machine.broker.tally.listeners["PLAINTEXT"]
    await until(lambda: counted.accepted == 50)
    metrics = metrics_of(machine.broker)
    listener = {"listener": "PLAINTEXT", "networkProcessor": "0"}
    rate = "kafka_server_socket_server_metrics_connection_creation_rate"
    assert (await scrape(metrics)).value(rate, **listener) == 0
    await trio.sleep(1)
    assert (await scrape(metrics)).value(rate, **listener) == 0, "the 50 came before"
    await machine.connect()
    await until(lambda: counted.accepted == 51)
    assert (await scrape(metrics)).value(rate, **listener) == pytest.approx(1, rel=0.1)


async def test_the_slowest_fetcher_shows_how_often_it_asks(nursery, autojump_clock):
    async with cluster(nursery, 2, replica_fetch_wait_max_ms="500") as machines:
        await create_topic(await machines[0].connect(), "t", [1, 2])
        leader = await leader_of(machines, "t")
        follower = next(machine for machine in machines if machine is not leader)
        rate = "kafka_server_replicafetchermanager_minfetchrate"
        metrics = metrics_of(follower.broker)
        assert (await scrape(metrics)).value(rate, clientId="Replica") == 0
        await trio.sleep(20)
        # A Fetch that finds nothing waits for half a second.
        assert (await scrape(metrics)).value(rate, clientId="Replica") == pytest.approx(2, rel=0.1)
        lone = await scrape(metrics_of((await Machine(nursery, listeners="PLAINTEXT://127.0.0.1:9100").start()).broker))
        assert lone.value(rate, clientId="Replica") == 0


async def test_a_waiting_fetch_is_in_its_purgatory(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await client.send(fetch_request([("t", 0, 0)], min_bytes=1, max_wait_ms=5000), 12)
    await trio.sleep(0.5)
    found = await scrape(machine.broker)
    purgatory = "kafka_server_delayedoperationpurgatory_purgatorysize"
    assert found.value(purgatory, delayedOperation="Fetch") == 1
    assert found.value(purgatory, delayedOperation="Produce") == 0


async def test_a_partition_shows_its_log_and_its_isr(nursery, autojump_clock):
    async with cluster(nursery, 3) as machines:
        await create_topic(await machines[0].connect(), "t", [3, 2, 1], **{"min.insync.replicas": "2"})
        three = await leader_of(machines, "t")
        client = await three.connect()
        assert (await client.produce("t", batch_of(b"a", b"b"))).error_code == 0
        place = {"topic": "t", "partition": 0}
        found = await scrape(three.broker)
        assert found.value("kafka_log_log_logendoffset", **place) == 2
        assert found.value("kafka_log_log_size", **place) == len(batch_of(b"a", b"b"))
        assert found.value("kafka_log_log_numlogsegments", **place) == 1
        assert found.value("kafka_cluster_partition_insyncreplicascount", **place) == 3
        assert found.value("kafka_topic_partition_current_offset", **place) == 2
        assert found.value("kafka_topic_partition_leader", **place) == 3
        assert found.value("kafka_topic_partition_leader_is_preferred", **place) == 1
        assert found.value("kafka_server_replicamanager_underreplicatedpartitions") == 0

        await machines[1].crash()
        partition = three.broker.replicas.get("t", 0)
        await until(lambda: len(partition.in_sync_replicas) == 2)
        found = await scrape(three.broker)
        assert found.value("kafka_server_replicamanager_underreplicatedpartitions") == 1
        assert found.value("kafka_server_replicamanager_atminisrpartitioncount") == 1
        assert found.value("kafka_server_replicamanager_underminisrpartitioncount") == 0
        assert found.value("kafka_cluster_partition_underreplicated", **place) == 1
        assert found.value("kafka_topic_partition_in_sync_replica", **place) == 2
        assert found.value("kafka_topic_partition_under_replicated_partition", **place) == 1

        follower = await scrape(machines[0].broker)
        assert follower.value("kafka_server_replicamanager_leadercount") == 0
        assert follower.value("kafka_cluster_partition_insyncreplicascount", **place) == 0
        assert follower.value("kafka_topic_partition_leader", **place) is None, "the leader alone has it"
        assert (
            follower.value("kafka_server_fetcherlagmetrics_consumerlag", clientId="ReplicaFetcherThread-0-3", **place)
            == 0
        )


async def test_the_controller_alone_shows_the_cluster(nursery, autojump_clock):
    async with cluster(nursery, 2) as machines:
        await create_topic(await machines[0].connect(), "t", [2], [1])
        await leader_of(machines, "t", 1)
        active = controller_of(machines)
        other = next(machine for machine in machines if machine is not active)
        found, quiet = await scrape(active.broker), await scrape(other.broker)
        prefix = "kafka_controller_kafkacontroller_"
        assert found.value(f"{prefix}activecontrollercount") == 1
        assert found.value(f"{prefix}globalpartitioncount") == 2
        assert found.value(f"{prefix}activebrokercount") == 2
        assert found.value("kafka_brokers") == 2
        assert found.value("kafka_topic_partitions", topic="t") == 2
        assert quiet.value(f"{prefix}activecontrollercount") == 0
        assert quiet.value(f"{prefix}globalpartitioncount") == 0
        assert quiet.value("kafka_brokers") is None

        await other.crash()
        await until(lambda: active.broker.metadata.leader_of("t", 0) is None)
        found = await scrape(active.broker)
        assert found.value(f"{prefix}offlinepartitionscount") == 1
        assert found.value("kafka_topic_partition_leader", topic="t", partition=0) == -1


async def test_a_failed_log_directory_is_shown(nursery, autojump_clock):
    machine = await Machine(nursery, log_dirs="/a,/b").start()
    client = await machine.connect()
    await client.create_topic("t", 2)
    machine.disk.fail_next("write", path_part="/t-0/")
    assert (await client.produce("t", batch_of(b"a"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (failed,) = machine.broker.replicas.logs.offline_directories
    (other,) = machine.broker.replicas.logs.online_directories
    found = await scrape(machine.broker)
    assert found.value("kafka_log_logmanager_offlinelogdirectorycount") == 1
    assert found.value("kafka_log_logmanager_logdirectoryoffline", logDirectory=failed) == 1
    assert found.value("kafka_log_logmanager_logdirectoryoffline", logDirectory=other) == 0
    assert found.value("kafka_server_replicamanager_offlinereplicacount") == 1


async def test_beyond_the_limit_partitions_have_sums_alone(nursery, autojump_clock):
    machine, _ = await with_topic(nursery, 5, properties={"barnabas.metrics.partitions.max": "2"})
    found = await scrape(machine.broker)
    assert len(found.all("kafka_log_log_size")) == 2
    assert len(found.all("kafka_topic_partition_current_offset")) == 2
    assert found.value("kafka_server_replicamanager_partitioncount") == 5
    assert found.value("barnabas_series_left_out") == 3 * 17
    assert (await scrape((await Machine(nursery, listeners="PLAINTEXT://127.0.0.1:9100").start()).broker)).value(
        "barnabas_series_left_out"
    ) == 0


async def test_the_facts_of_the_process_and_the_broker_are_shown(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    found = await scrape(machine.broker)
    assert found.value("process_open_fds") == 17
    assert found.value("process_cpu_seconds_total") == 1.5
    assert found.value("kafka_server_kafkaserver_brokerstate") == 3
    (build,) = found.all("barnabas_build_info")
    assert build["cluster_id"] == machine.broker.cluster_id
    assert 0 <= found.value("kafka_network_socketserver_networkprocessoravgidle_percent") <= 1


async def test_every_family_has_help_and_type_and_only_its_own_labels(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await client.produce("t", batch_of(b"a"))
    found = await scrape(machine.broker)
    by_name = {metric.name: metric for metric in METRICS}
    assert found.types.keys() <= by_name.keys()
    for name, labels in found.samples:
        family = next(each for each in (name, name.rpartition("_")[0]) if each in by_name)
        metric = by_name[family]
        assert f"# HELP {family} {metric.meaning}\n# TYPE {family} {metric.kind.value}\n" in found.text
        needed = {each for each in metric.labels if not each.endswith("?")} - {"quantile", "le"}
        assert needed <= {key for key, _ in labels} <= {each.rstrip("?") for each in metric.labels}


async def test_openmetrics_names_a_counter_without_its_ending(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await client.produce("t", batch_of(b"a"))
    plain, found = await scrape(machine.broker), await scrape(machine.broker, openmetrics=True)
    assert found.text.endswith("# EOF\n")
    assert "# TYPE kafka_server_brokertopicmetrics_messagesin counter\n" in found.text
    assert {name for name, _ in found.samples} == {name for name, _ in plain.samples}
    counters = [metric for metric in METRICS if metric.kind is Kind.COUNTER]
    assert all(metric.name.endswith("_total") for metric in counters)
    assert wants_openmetrics("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
    assert not wants_openmetrics("*/*")


async def test_confluents_names_are_those_of_the_mbeans(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await client.produce("t", batch_of(b"a"))
    page = await Page(machine).open(nursery)
    _, headers, body = await page.ask("/metrics?names=confluent")
    found = parsed(body.decode())
    assert headers["content-type"].startswith("text/plain")
    assert found.value(f"{TOPIC_METRICS}messagesinpersec", topic="t") == 1
    assert found.value(f"{TOPIC_METRICS}messagesin_total", topic="t") is None
    assert found.types[f"{TOPIC_METRICS}messagesinpersec"] == "counter"
    own = parsed((await page.ask("/metrics"))[2].decode())
    assert own.value(f"{TOPIC_METRICS}messagesin_total", topic="t") == 1
    assert await page.refused("/metrics?names=burrow") == (400, "names: one of kafka, confluent, not 'burrow'")


async def test_the_slowest_of_too_many_scrapers_makes_room(nursery, autojump_clock):
    machine, _ = await with_topic(nursery, 200)
    page = await Page(machine).open(nursery)
    slow = []
    for _ in range(SCRAPES_MAX):
        slow.append(await machine.net.connect("127.0.0.1", page.console.port))
        await slow[-1].send_all(request_bytes("/metrics"))
        await trio.testing.wait_all_tasks_blocked()
    assert (await page.ask("/metrics"))[0] == 200
    with pytest.raises((h11.RemoteProtocolError, ConnectionLost)):
        await read_answer(slow[0])
    assert (await read_answer(slow[1]))[0] == 200


async def test_a_scraper_that_takes_a_little_at_a_time_is_given_up(nursery, autojump_clock):
    machine, _ = await with_topic(nursery, 1000)
    page = await Page(machine).open(nursery)
    stream = await machine.net.connect("127.0.0.1", page.console.port)
    await stream.send_all(request_bytes("/metrics"))
    await trio.testing.wait_all_tasks_blocked()
    began = trio.current_time()
    heard = b""
    while page.console._server.connection_count:
        heard += await stream.receive_some(PIPE_BYTES)
        await trio.sleep(15)
    assert trio.current_time() - began <= SCRAPE_SECONDS + 15
    assert not (heard + await read_to_the_end(stream)).endswith(END_OF_CHUNKS)


def test_labels_are_escaped():
    assert labels_of(consumergroup='a"b\\c\nd', partition=3) == '{consumergroup="a\\"b\\\\c\\nd",partition="3"}'


def test_a_label_is_as_long_as_it_may_be_and_two_long_ones_differ():
    long = ["g" * 32_000 + end for end in ("a", "b")]
    one, other = (escaped(each) for each in long)
    assert len(one) == len(other) == LABEL_CHARACTERS_MAX
    assert one != other
    assert escaped("g" * LABEL_CHARACTERS_MAX) == "g" * LABEL_CHARACTERS_MAX
    assert escaped('"' * 32_000).startswith('\\"' * 200)


def test_each_metric_has_one_row_and_a_meaning():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert [metric.name for metric in METRICS if not metric.meaning.endswith(".")] == []


class Steps(trio.abc.Instrument):
    """Counts the steps of one task."""

    def __init__(self, task) -> None:
        self.task = task
        self.count = 0

    def before_task_step(self, task) -> None:
        self.count += task is self.task


async def test_a_scrape_is_made_in_many_steps(nursery, autojump_clock):
    machine, _ = await with_topic(nursery, 1000)
    metrics = metrics_of(machine.broker)
    steps = Steps(trio.lowlevel.current_task())
    trio.lowlevel.add_instrument(steps)
    pieces = [piece async for piece in exposition(metrics)]
    trio.lowlevel.remove_instrument(steps)
    # Without a clock a turn has 200 rows; each partition is one when it is read, and 1.7 when its lines are joined.
    assert steps.count > 10
    assert max(map(len, pieces)) < 100_000
