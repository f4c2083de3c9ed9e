"""Create a topic, write to it, read it back: first steps with a stock kafka-python client.

make serve                                   # in one terminal
python examples/first_steps.py               # in another: pip install kafka-python
"""

import sys

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = "letters"

admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
if TOPIC not in admin.list_topics():
    admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=1)])
admin.close()

producer = KafkaProducer(bootstrap_servers=BOOTSTRAP)
for number in range(10):
    producer.send(TOPIC, key=b"K.", value=f"to the castle, no. {number}".encode())
producer.flush()
producer.close()

consumer = KafkaConsumer(
    TOPIC,
    bootstrap_servers=BOOTSTRAP,
    group_id="land-surveyors",
    auto_offset_reset="earliest",
    consumer_timeout_ms=2000,
)
for message in consumer:
    print(f"{message.topic}-{message.partition} @{message.offset}: {message.key.decode()} -> {message.value.decode()}")
consumer.close()
