"""The audit finds each planted fault with the right kind, and nothing in a history without faults."""

import json
import pathlib
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator

import pytest

from compat_tests.brokers import BrokerProcess
from compat_tests.cluster.ledger import digest_of
from compat_tests.cluster.run import TOPIC as CLUSTER_TOPIC
from compat_tests.cluster.run import run
from compat_tests.kafka import run_java_tool
from compat_tests.pipeline.histories import FAULTS, TOPIC, History, expected
from compat_tests.pipeline.jobs import archive_arguments
from compat_tests.raw import create_topic
from compat_tests.spark.environment import run_with_spark, spark_environment, spark_python
from compat_tests.tools import require_tool

pytestmark = pytest.mark.long

RECORDS = 20_000
VERIFIED = 2000
EARLIEST = ("--reset-policy", "earliest")
CLUSTER_SECONDS = 15.0


def audit_all(jobs: list[dict]) -> list[dict]:
    """These audits, one after another, by one process."""
    ran = subprocess.run(
        [str(spark_python()), "-m", "compat_tests.pipeline.audits"],
        input="".join(json.dumps(job) + "\n" for job in jobs),
        env=spark_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return [json.loads(line) for line in ran.stdout.splitlines()]


def job_for(history: History) -> dict:
    return {"ledgers": [str(history.directory)], "replicas": list(map(str, history.replicas))}


def altered_by_retention(history: History) -> None:
    """Two partitions are empty, as retention leaves one, and as nothing else may leave another."""
    history.write()
    for replica in history.replicas:
        for partition in (0, 1):
            shutil.rmtree(replica / f"{TOPIC}-{partition}")
            (replica / f"{TOPIC}-{partition}").mkdir()
        (replica / f"{TOPIC}-0" / f"{RECORDS // 4:020}.log").touch()


def moved_and_read_in_part(history: History) -> None:
    """One replica has only some partitions, and a second reader ended somewhere."""
    history.write()
    shutil.rmtree(history.replicas[2] / f"{TOPIC}-1")
    reads = (history.directory / "ledger-c0.jsonl").read_text().splitlines(keepends=True)
    again = [line.replace('"c0"', '"c1"').replace('"readers"', '"more"') for line in reads]
    (history.directory / "ledger-c1.jsonl").write_text("".join(again[:7003]))


def acknowledged_in_two_partitions(history: History) -> None:
    """A record is in two partitions, and was acknowledged in both."""
    at = history.place(0.5)
    history.moved[0, at] = history.sent(1, at)
    history.write()
    ledger = history.directory / f"ledger-{history.sent(0, at).producer}.jsonl"
    was, now = (f'"sequence":{history.sent(partition, at).sequence},' for partition in (0, 1))
    stamps = [digest_of(history.sent(partition, at).value()) for partition in (0, 1)]
    ledger.write_text(ledger.read_text().replace(was, now).replace(*stamps))


CASES: dict[str, tuple[Collection[str], Callable[[History], object], dict[str, int]]] = {
    "nothing": ((), History.write, {}),
    "everything": (FAULTS, History.write, expected(FAULTS)),
    "retention": ((), altered_by_retention, {"lost": RECORDS // 4, "phantom": RECORDS // 4}),
    "moved and read in part": ((), moved_and_read_in_part, {}),
    "two partitions": ((), acknowledged_in_two_partitions, {"duplicated": 1}),
}


@pytest.fixture(scope="module")
def audits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    folder = tmp_path_factory.mktemp("histories")
    histories = [History(folder / name, RECORDS, faults) for name, (faults, _, _) in CASES.items()]
    for history, (_, write, _) in zip(histories, CASES.values(), strict=True):
        write(history)
    return dict(zip(CASES, audit_all(list(map(job_for, histories))), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_an_audit_finds_what_is_wrong_and_nothing_else(audits, case):
    found, (_, _, wrong) = audits[case], CASES[case]
    assert found["totals"] == wrong, found["examples"]
    assert found["clean"] == (not wrong)
    assert found["events"]["acked"] > RECORDS - 2000


def test_an_audit_says_where(audits):
    said = {finding["kind"]: finding for finding in audits["everything"]["examples"]}
    assert said["lost"]["text"] == "p1.2828 was acknowledged at offset 1507, and lies nowhere"
    assert (said["corrupt"]["replica"], said["corrupt"]["partition"], said["corrupt"]["offset"]) == ("2", 0, 4000)
    assert said["gap"]["text"] == "no offsets 2000 to 2099 on 1, 2, 3"
    assert said["diverging"]["offset"] == 4505
    assert sum(row["records"] for row in audits["everything"]["held"]) > 3 * RECORDS - 2000


def test_what_retention_removed_is_not_lost(audits):
    found = audits["retention"]
    assert {count["partition"] for count in found["counts"]} == {1}, "a partition without segments holds nothing"


def test_a_reader_of_some_records_and_a_replica_of_some_partitions_were_there(audits):
    found = audits["moved and read in part"]
    assert (len(found["held"]), found["events"]["read"]) == (11, RECORDS + 7003)


def test_the_command_prints_json_writes_a_page_and_ends_with_status_1(tmp_path):
    history = History(tmp_path / "history", RECORDS, ["lost"]).write()
    replicas = [word for replica in history.replicas for word in ("--replica", str(replica))]
    page = tmp_path / "audit.html"
    command = ["-m", "barnabas.pipeline", "audit", history.directory, *replicas, "--json", "--html", page]
    ran = run_with_spark(*command)
    assert ran.returncode == 1, ran.stderr[-4000:]
    assert json.loads(ran.stdout)["totals"] == {"lost": 1}
    text = page.read_text()
    assert "lies nowhere" in text
    assert text.count("<svg") == 3
    assert "<script" not in text
    assert " src=" not in text


def test_what_cannot_be_looked_at_ends_with_status_2(commands, tmp_path):
    ran = commands.run("audit", tmp_path, "--replica", tmp_path / "nowhere")
    assert ran.status == 2
    assert "barnabas: " in ran.stderr


def test_the_segments_command_names_a_batch_that_cannot_be_read(commands, tmp_path):
    history = History(tmp_path / "history", RECORDS, ["flipped"]).write()
    ran = commands.run("segments", history.replicas[1], "--json")
    assert ran.status == 1, ran.stderr[-4000:]
    *partitions, problem = map(json.loads, ran.stdout.splitlines())
    assert [row["records"] for row in partitions] == [RECORDS // 4 - 100, *[RECORDS // 4] * 3]
    assert (problem["partition"], problem["base_offset"], problem["problem"]) == (0, 4000, "the checksum is wrong")


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, pathlib.Path]]:
    """A broker, and what Kafka's verifiable tools said when they wrote to it and read from it."""
    directory = tmp_path_factory.mktemp("verified")
    said = directory / "said"
    said.mkdir()
    tools = (("Producer", "--value-prefix", "7"), ("Consumer", "--group-id", "g", "--verbose", *EARLIEST))
    with BrokerProcess(directory) as broker:
        create_topic(broker.port, "verified", 2)
        common = ("--bootstrap-server", broker.bootstrap, "--topic", "verified", "--max-messages", str(VERIFIED))
        for tool, *more in tools:
            ran = run_java_tool(f"org.apache.kafka.tools.Verifiable{tool}", *common, *more)
            (said / f"{tool}.json").write_text(ran.stdout)
        yield broker, said


def test_what_kafkas_verifiable_tools_say_is_true_of_the_segments_and_of_the_topic(verified, commands):
    broker, said = verified
    where = ("--replica", broker.data_dir, "--bootstrap-server", broker.bootstrap, "--topic", "verified", "--live")
    ran = commands.run("audit", said, *where, "--json")
    found = json.loads(ran.stdout)
    assert (ran.status, found["totals"]) == (0, {}), found["examples"]
    assert (found["events"]["acked"], found["events"]["read"]) == (VERIFIED, VERIFIED)
    assert len({held["replica"] for held in found["held"]}) == 2
    assert sum(held["records"] for held in found["held"]) == 2 * VERIFIED


def test_an_archive_holds_what_the_topic_held_when_it_was_made(verified, commands, tmp_path):
    broker, said = verified
    place = tmp_path / "archive"
    commands.events(*archive_arguments(place, broker.bootstrap, ["verified"]))
    where = ("--archive", place, "--replica", broker.data_dir, "--topic", "verified", "--live")
    ran = commands.run("audit", said, *where)
    assert ran.status == 0, ran.stdout + ran.stderr[-4000:]
    assert f"{2 * VERIFIED} records" in ran.stdout
    assert "nothing is wrong" in ran.stdout
    assert "archive" in ran.stdout
    assert "verified-" in ran.stdout  # a fast producer may fill one partition alone


def test_a_word_of_a_verifiable_tool_that_is_not_true_is_found(verified, commands, tmp_path):
    broker, said = verified
    lines = (said / "Producer.json").read_text().splitlines()
    number = next(at for at, line in enumerate(lines) if '"7.17"' in line)
    lines[number] = lines[number].replace('"7.17"', '"7.100017"')
    (tmp_path / "Producer.json").write_text("\n".join(lines))
    ran = commands.run("audit", tmp_path, "--replica", broker.data_dir, "--live", "--json")
    assert (ran.status, json.loads(ran.stdout)["totals"]) == (1, {"lost": 1, "reordered": 1})


def test_histories_of_clusters_under_faults_are_clean(tmp_path):
    require_tool("java")
    jobs = []
    for seed, load in ((201, "confluent"), (202, "verifiable")):
        directory = tmp_path / load
        result = run("barnabas", seed, CLUSTER_SECONDS, directory, load=load)
        assert result.verdict == "kept", result
        replicas = [str(directory / f"broker-{broker}" / "data") for broker in (1, 2, 3)]
        jobs.append({"ledgers": [str(directory)], "replicas": replicas, "topics": [CLUSTER_TOPIC]})
    for found in audit_all(jobs):
        assert found["totals"] == {}, found["examples"]
        assert found["events"]["acked"] > 100
        assert found["events"]["read"] > 100
        assert sum(held["records"] for held in found["held"]) >= 3 * found["events"]["acked"]
