"""The page of a broker in a test: its health is there, in each of its lives, at the same address."""

import json
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from barnabas.testing import LocalBroker, LocalBrokerError, LocalCluster


def is_ready(url):
    with urlopen(f"{url}readyz", timeout=10) as answer:
        return json.loads(answer.read())["ok"]


def test_a_broker_has_its_page_in_each_of_its_lives():
    with LocalBroker(http=True) as broker:
        url = broker.page_url
        assert is_ready(url)
        broker.kill()
        with pytest.raises(URLError):
            is_ready(url)
        broker.restart()
        assert broker.page_url == url
        assert is_ready(url)


def test_each_broker_of_a_cluster_has_a_page():
    with LocalCluster(2, http=True) as cluster:
        first, second = (broker.page_url for broker in cluster.brokers.values())
        assert (first != second, is_ready(first), is_ready(second)) == (True, True, True)
        cluster.kill(1)
        with pytest.raises(URLError):
            is_ready(first)
        cluster.start(1)
        assert is_ready(first)


def test_without_http_there_is_no_page():
    with LocalBroker() as broker, pytest.raises(LocalBrokerError, match="made without `http=True`"):
        _ = broker.page_url
    with LocalCluster(1) as cluster, pytest.raises(LocalBrokerError, match="made without `http=True`"):
        _ = cluster.brokers[1].page_url
    with pytest.raises(LocalBrokerError, match=r"barnabas\.http\.listener"):
        LocalBroker(http=True, process=True)
