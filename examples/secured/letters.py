"""Write a record and read it again, as alice.

    python examples/secured/letters.py        # --bootstrap-server HOST:PORT names another broker

ALICE_PASSWORD is in the environment, the broker's certificate in broker.crt, in the folder where this is started.
"""

import argparse
import os
import sys

try:
    from confluent_kafka import Consumer, Producer
except ImportError as missing:
    sys.exit(f"{missing} (`make examples`, then .venv/bin/python; elsewhere: pip install confluent-kafka)")

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--bootstrap-server", metavar="HOST:PORT", default="127.0.0.1:9093")
BOOTSTRAP = parser.parse_args().bootstrap_server
ANSWER_SECONDS = 10

if "ALICE_PASSWORD" not in os.environ or not os.path.exists("broker.crt"):
    sys.exit("needs ALICE_PASSWORD in the environment, and broker.crt in this folder: as for the broker, see README.md")
SETTINGS = {
    "bootstrap.servers": BOOTSTRAP,
    "security.protocol": "SASL_SSL",
    "ssl.ca.location": "broker.crt",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "alice",
    "sasl.password": os.environ["ALICE_PASSWORD"],
}

producer = Producer(SETTINGS)
producer.produce("letters", b"to the castle")
if producer.flush(ANSWER_SECONDS):
    sys.exit(f"the record was not delivered to {BOOTSTRAP}")
consumer = Consumer(SETTINGS | {"group.id": "land-surveyors", "auto.offset.reset": "earliest"})
consumer.subscribe(["letters"])
message = consumer.poll(30)
if message is None or message.error():
    sys.exit(f"no record came from {BOOTSTRAP}: {message and message.error()}")
print(message.value().decode())
consumer.close()
