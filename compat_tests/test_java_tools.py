"""Kafka's own command-line tools, of 3.9 and of 4, against a running broker."""

import pytest

from compat_tests.kafka import run_java_tool

TOOLS = "org.apache.kafka.tools"


@pytest.fixture(params=["3.9", "4.1"])
def tool(request, shared_broker):
    """Run a tool against the broker; its standard output, after it has ended well."""

    def run(main_class, *arguments, **options):
        bootstrap = "--bootstrap-server", shared_broker.bootstrap
        ran = run_java_tool(main_class, *bootstrap, *arguments, version=request.param, **options)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run


def test_topics_are_created_listed_and_deleted(tool, topic):
    command = f"{TOOLS}.TopicCommand"
    assert tool(command, "--create", "--topic", topic, "--partitions", "3") == f"Created topic {topic}.\n"
    assert topic in tool(command, "--list").split()
    assert tool(command, "--delete", "--topic", topic) == ""
    assert topic not in tool(command, "--list").split()
