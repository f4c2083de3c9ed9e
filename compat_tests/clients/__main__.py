"""Run a client's tests against a broker: python -m compat_tests.clients [NAME...] [--record] [--report]

Without names, the clients are listed. The broker is a Barnabas of its own for each client, with the settings that its
tests want; `--kafka` takes Apache Kafka 3.9 instead, `--bootstrap` one that runs. `--brokers 3` starts that many of
either kind on a ZooKeeper, with as many replicas of every topic. `--security all` runs the client over TLS and with
every login instead; SASL_SSL, or "SASL_SSL PLAIN", names some; `suite` runs those of its own tests that ask for TLS,
logins or ACLs, on three brokers. Status 1: something failed that is not on the
allow-list, or is on it and passed.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace

from compat_tests.brokers import BrokerProcess
from compat_tests.clients import report, secured, secured_suites, sessions
from compat_tests.clients.client import (
    WORK,
    Client,
    ClientBroken,
    Session,
    client_names,
    folder_of,
    load_client,
)
from compat_tests.clients.verdict import Setup, Verdict, judge, read_allowed
from compat_tests.small_cluster import SmallCluster


def main() -> int:
    options = parsed(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # end what was started, as after Ctrl-C
    if not (options.names or options.report or options.security):
        for name in client_names():
            client = load_client(name)
            print(f"{name} {client.version} ({client.language}): {client.covers}")
    if options.sessions:
        print(sessions.table(sessions.stay([load_client(name) for name in options.names], options.sessions)))
        return 0
    bad = 0
    for name in options.names or secured_names(options.security):
        try:
            bad += not run_one(load_client(name), options)
        except ClientBroken as broken:
            print(f"{name}: {broken}")
            bad += 1
    if options.report:
        report.PAGE.write_text(report.page())
    return 1 if bad else 0


def secured_names(which: str | None) -> list[str]:
    """The clients that can be run in this way over TLS and SASL."""
    if which is None:
        return []
    what = "secured_suite" if which == secured_suites.SUITE else "secured"
    return [name for name in client_names() if getattr(load_client(name), what)]


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.clients", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a client; without one they are listed")
    parser.add_argument("--only", metavar="PATTERN", help="the tests to run, in the words of the client's test program")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker that runs already")
    parser.add_argument("--kafka", action="store_true", help="start Apache Kafka 3.9 instead of Barnabas")
    parser.add_argument("--brokers", type=int, default=1, metavar="N", help="so many brokers and replicas (1)")
    parser.add_argument("--security", metavar="WHICH", help=f"all, suite, or of {', '.join(map(str, secured.CELLS))}")
    parser.add_argument("--sessions", type=float, metavar="SECONDS", help="how often these clients log in again")
    parser.add_argument("--record", action="store_true", help="keep the result in the client's folder")
    parser.add_argument("--report", action="store_true", help="write docs/compatibility.md from what is kept")
    return parser.parse_args(words)


def run_one(client: Client, options: argparse.Namespace) -> bool:
    """Run and judge; whether all is as it should be."""
    missing = [tool for tool in client.tools if shutil.which(tool) is None]
    if missing:
        raise ClientBroken(f"{', '.join(missing)} not found on the path")
    folder, work = folder_of(client.name), WORK / client.name
    complete = options.only is None and options.security in (None, secured.ALL, secured_suites.SUITE)
    if options.security == secured_suites.SUITE:
        setup, suite = Setup.SECURED_SUITE, client.secured_suite
        if suite is None:
            raise ClientBroken("has no tests of its own that ask for TLS, logins or ACLs")
        client = replace(client, covers=suite.covers)
        session = Session(folder, work, "", options.only, secured_suites.BROKERS)
        with secured_suites.secured_brokers(work / "certificates") as brokers:
            outcomes = suite.run(session, brokers)
    elif options.security:
        setup = Setup.SECURED
        outcomes = secured.run(client, Session(folder, work, ""), secured.chosen(options.security))
    else:
        setup = Setup.ONE_BROKER if options.brokers == 1 else Setup.CLUSTER
        with some_broker(client, options) as bootstrap:
            outcomes = client.run(Session(folder, work, bootstrap, options.only, options.brokers))
    verdict = judge(client, outcomes, read_allowed(folder, setup), complete)
    verdict.result.write(work / setup.result_name)
    if options.record and complete:
        verdict.result.write(folder / setup.result_name)
    say(verdict, work)
    return not verdict.complaints


@contextlib.contextmanager
def some_broker(client: Client, options: argparse.Namespace) -> Iterator[str]:
    if options.bootstrap:
        yield options.bootstrap
        return
    settings = {key.replace(".", "_"): value for key, value in client.settings.items()}
    with tempfile.TemporaryDirectory(prefix=f"compat-{client.name}-") as directory:
        if options.brokers > 1:
            kind = "kafka" if options.kafka else "barnabas"
            with SmallCluster(kind, pathlib.Path(directory), options.brokers, **settings) as cluster:
                try:
                    yield cluster.bootstrap
                finally:
                    cluster.keep_logs(WORK / client.name)
            return
        if options.kafka:
            from compat_tests.kafka import KafkaProcess

            with KafkaProcess(pathlib.Path(directory), **settings) as kafka:
                yield kafka.bootstrap
            return
        broker = BrokerProcess(pathlib.Path(directory), **settings).start()
        try:
            yield broker.bootstrap
        finally:
            broker.kill()
            shutil.copy(broker.log_path, WORK / client.name / "broker.log")


def say(verdict: Verdict, work: pathlib.Path) -> None:
    result = verdict.result
    for complaint in verdict.complaints:
        print(f"{result.client}: {complaint}")
    print(
        f"{result.client} {result.version}: {result.passed} passed, {len(result.failed)} failed, "
        f"{len(result.listed)} listed, {len(result.skipped)} skipped (output: {os.path.relpath(work)}/output.log)"
    )


if __name__ == "__main__":
    sys.exit(main())
