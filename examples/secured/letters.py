"""Write a record and read it again, as alice.

python examples/secured/letters.py    ALICE_PASSWORD is in the environment, the broker's certificate in broker.crt
"""

import os

from confluent_kafka import Consumer, Producer

SETTINGS = {
    "bootstrap.servers": os.environ.get("BOOTSTRAP", "127.0.0.1:9093"),
    "security.protocol": "SASL_SSL",
    "ssl.ca.location": "broker.crt",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "alice",
    "sasl.password": os.environ["ALICE_PASSWORD"],
}

producer = Producer(SETTINGS)
producer.produce("letters", b"to the castle")
if producer.flush(30):
    raise SystemExit("the record was not delivered")
consumer = Consumer(SETTINGS | {"group.id": "land-surveyors", "auto.offset.reset": "earliest"})
consumer.subscribe(["letters"])
message = consumer.poll(30)
if message is None or message.error():
    raise SystemExit(f"no record came: {message and message.error()}")
print(message.value().decode())
consumer.close()
