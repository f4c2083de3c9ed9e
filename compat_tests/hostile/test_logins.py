"""Each attack on a login once, at each listener: it is refused, its connection ends, and other clients are served."""

import contextlib
import json
from collections.abc import Iterator

import pytest

from barnabas.testing.running.processes import forget_peak_of, peak_resident_bytes_of, resident_bytes_of
from compat_tests.hostile import login_fuzz
from compat_tests.hostile.bystander import trip
from compat_tests.hostile.logins import ATTACKS, CASES, PLAINTEXT, WITH_TLS, silent_handshake
from compat_tests.hostile.process import MIB, SecuredWatchedBroker
from compat_tests.raw import RawClient, create_topic

MEMORY_BYTES_MAX = 64 * MIB
REACHED_LINES_MIN = 300  # of the code that logs clients in


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredWatchedBroker]:
    with SecuredWatchedBroker(tmp_path_factory.mktemp("attacked")) as broker:
        create_topic(broker.target.ports[PLAINTEXT], "ordinary")
        yield broker


@pytest.mark.parametrize(("name", "protocol"), CASES)
def test_an_attack_on_a_login_is_refused_and_disturbs_no_other_client(
    broker: SecuredWatchedBroker, name: str, protocol: str
) -> None:
    with RawClient(broker.target.ports[PLAINTEXT]) as bystander:
        trip(bystander)
        before = resident_bytes_of(broker.pid)
        forget_peak_of(broker.pid)
        ATTACKS[name].strike(broker.target, protocol)
        trip(bystander)
        taken = peak_resident_bytes_of(broker.pid) - before
    assert broker.is_running()
    assert taken < MEMORY_BYTES_MAX, f"{taken / MIB:.0f} MiB were taken"


def test_the_corpus_of_the_fuzzer_finds_nothing() -> None:
    corpus = [bytes.fromhex(each) for each in json.loads(login_fuzz.CORPUS.read_text())]
    reached = {line for stream in corpus for line in login_fuzz.lines_of(stream)}
    assert len(reached) > REACHED_LINES_MIN


def test_no_attack_is_a_bug_in_the_log(broker: SecuredWatchedBroker) -> None:
    assert "Traceback" not in broker.log_path.read_text()


@pytest.mark.thorough  # HANDSHAKE_SECONDS pass
def test_handshakes_that_do_not_go_on_are_closed(broker: SecuredWatchedBroker) -> None:
    kept = [silent_handshake(broker.target, at, size) for at in WITH_TLS for size in (0, 1, 5, 200, None)]
    for each in kept:
        # TimeoutError: it stays open.
        with contextlib.suppress(ConnectionError):
            while each.recv(1 << 16):
                pass
        each.close()
