"""aiokafka: its distribution ships no tests, so these are scenarios of ours."""

from compat_tests.clients.client import Client
from compat_tests.clients.pytest_suite import installed_version, run_scenarios, secured_program

CLIENT = Client(
    name="aiokafka",
    version=installed_version("aiokafka"),
    language="Python",
    covers="our scenarios: codecs, headers, timestamps, batches by hand, idempotence, transactions, seeking, pausing,"
    " patterns, groups with every assignor, static members, every admin call",
    run=run_scenarios,
    secured=secured_program,
)
