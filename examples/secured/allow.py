"""Allow alice to create, write and read the topic `letters`, and to read it in the group `land-surveyors`.

    python examples/secured/allow.py          # --bootstrap-server HOST:PORT names another broker

ADMIN_PASSWORD is in the environment, the broker's certificate in broker.crt, in the folder where this is started.
"""

import argparse
import os
import sys

try:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )
except ImportError as missing:
    sys.exit(f"{missing} (`make examples`, then .venv/bin/python; elsewhere: pip install confluent-kafka)")

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--bootstrap-server", metavar="HOST:PORT", default="127.0.0.1:9093")
BOOTSTRAP = parser.parse_args().bootstrap_server
ANSWER_SECONDS = 10
ALLOWED = (
    (ResourceType.TOPIC, "letters", AclOperation.CREATE),
    (ResourceType.TOPIC, "letters", AclOperation.WRITE),
    (ResourceType.TOPIC, "letters", AclOperation.READ),
    (ResourceType.GROUP, "land-surveyors", AclOperation.READ),
)

if "ADMIN_PASSWORD" not in os.environ or not os.path.exists("broker.crt"):
    sys.exit("needs ADMIN_PASSWORD in the environment, and broker.crt in this folder: as for the broker, see README.md")
admin = AdminClient(
    {
        "bootstrap.servers": BOOTSTRAP,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "broker.crt",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "admin",
        "sasl.password": os.environ["ADMIN_PASSWORD"],
    }
)
acls = [
    AclBinding(kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)
    for kind, name, operation in ALLOWED
]
for acl, created in admin.create_acls(acls, request_timeout=ANSWER_SECONDS).items():
    try:
        created.result()
    except KafkaException as error:
        sys.exit(f"no ACL was created at {BOOTSTRAP}: {error}")
    print(f"{acl.principal} may {acl.operation.name} {acl.restype.name} {acl.name}")
