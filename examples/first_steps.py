"""Create a topic, write to it, read it back: first steps with a stock kafka-python client.

make serve                                # in one terminal
make examples                             # in another: installs the clients in .venv
.venv/bin/python examples/first_steps.py  # --bootstrap-server HOST:PORT names another broker
"""

import argparse
import sys

try:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.admin import KafkaAdminClient, NewTopic
    from kafka.errors import KafkaError
except ImportError as missing:
    sys.exit(f"{missing} (`make examples`, then .venv/bin/python; elsewhere: pip install kafka-python)")

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--bootstrap-server", metavar="HOST:PORT", default="127.0.0.1:9092")
BOOTSTRAP = parser.parse_args().bootstrap_server
TOPIC = "letters"
CONNECT_MS = 5000

try:
    admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP, bootstrap_timeout_ms=CONNECT_MS)
except KafkaError as error:
    sys.exit(f"no broker at {BOOTSTRAP} (`make serve` starts one): {error}")
if TOPIC not in admin.list_topics():
    admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=1)])
admin.close()

producer = KafkaProducer(bootstrap_servers=BOOTSTRAP)
for number in range(10):
    producer.send(TOPIC, key=b"K.", value=f"to the castle, no. {number}".encode())
producer.flush(timeout=30)
producer.close()

consumer = KafkaConsumer(
    TOPIC,
    bootstrap_servers=BOOTSTRAP,
    group_id="land-surveyors",
    auto_offset_reset="earliest",
    consumer_timeout_ms=5000,
)
for message in consumer:
    print(f"{message.topic}-{message.partition} @{message.offset}: {message.key.decode()} -> {message.value.decode()}")
consumer.close()
