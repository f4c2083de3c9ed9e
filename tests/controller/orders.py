"""What tests share with `test_controller.py`."""

from barnabas.wire.topics import TopicPartition

ORDERS = TopicPartition("orders", 0)


def names(requests):
    return [type(request).__name__.removesuffix("Request") for request in requests]
