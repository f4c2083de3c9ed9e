"""Allow alice to create, write and read the topic `letters`, and to read it in the group `land-surveyors`.

python examples/secured/allow.py      ADMIN_PASSWORD is in the environment, the broker's certificate in broker.crt
"""

import os

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:9093")
ALLOWED = (
    (ResourceType.TOPIC, "letters", AclOperation.CREATE),
    (ResourceType.TOPIC, "letters", AclOperation.WRITE),
    (ResourceType.TOPIC, "letters", AclOperation.READ),
    (ResourceType.GROUP, "land-surveyors", AclOperation.READ),
)

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
for acl, created in admin.create_acls(acls).items():
    created.result()
    print(f"{acl.principal} may {acl.operation.name} {acl.restype.name} {acl.name}")
