"""What the programs print is understood: states, the end of the driver, and which exceptions are fencing."""

from compat_tests.streams.output import CLOSED, EXCEPTION, STARTED, Produced, last_run, last_state, produced, thrown

FENCED = f"""1700000000000
{EXCEPTION}
org.apache.kafka.streams.errors.StreamsException: Error encountered sending record to topic echo for task 0_1 due to:
org.apache.kafka.common.errors.ProducerFencedException: There is a newer producer with the same transactionalId
\tat org.apache.kafka.streams.processor.internals.RecordCollectorImpl.recordSendError(RecordCollectorImpl.java:303)
Caused by: org.apache.kafka.common.errors.ProducerFencedException: There is a newer producer
1700000000001
StateChange: RUNNING -> PENDING_ERROR
"""
LOST = f"""1700000000000
{EXCEPTION}
org.apache.kafka.streams.errors.StreamsException: task 0_1: failed
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.lang.IllegalStateException: no such store
\t... 3 more
[main] WARN org.apache.kafka.clients.NetworkClient - org.apache.kafka.common.errors.ProducerFencedException: of later
"""


def test_an_exception_that_has_fencing_in_its_chain_is_fencing():
    fenced, lost = thrown(FENCED + LOST)
    assert fenced.is_fencing()
    assert not lost.is_fencing()
    assert lost.names == ("StreamsException", "IllegalStateException")
    assert "no such store" in str(lost)


def test_an_exception_without_a_trace_is_none_of_fencing():
    (found,) = thrown(f"{EXCEPTION}\n")
    assert not found.is_fencing()


def test_the_state_is_that_since_the_last_start():
    running = f"{STARTED}\nStateChange: CREATED -> REBALANCING\nStateChange: REBALANCING -> RUNNING\n"
    assert last_state(running) == "RUNNING"
    assert last_state(running + f"{STARTED}\n") == ""
    assert CLOSED not in last_run(f"{STARTED}\n{CLOSED}\n{STARTED}\n")


def test_what_the_driver_wrote_is_in_its_last_lines():
    expired = "org.apache.kafka.common.errors.TimeoutException: Expiring 2 record(s) for data-3:120002 ms has passed\n"
    last = "Producer closed: 2345 records produced\nEnd-offset for data-0 is 2000\nEnd-offset for data-1 is 344\n"
    assert produced(f"1000 records produced\n{expired}{expired}2000 records produced\n{last}") == Produced(
        2345, 2, 2344
    )
    assert produced("1000 records produced\n") is None


def test_acknowledged_records_are_stored_once_and_failed_ones_once_or_not():
    assert Produced(100, 0, 100).is_exact()
    assert Produced(100, 2, 98).is_exact()
    assert not Produced(100, 2, 97).is_exact()
    assert not Produced(100, 2, 101).is_exact()
