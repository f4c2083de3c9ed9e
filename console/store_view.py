"""The nodes of the metadata store, read only.

They are for callers who may describe the cluster and its configuration. What Kafka's port does not show to them is left
out: topics that they may not describe, and secrets, which are passwords, credentials of SCRAM and delegation tokens.
"""

import json

import trio

from barnabas.broker.life import Life
from barnabas.config.table import BROKER_TABLE, TOPIC_TABLE
from barnabas.console.asking import Asking, asking_for, check
from barnabas.console.exchange import Answer, BadRequest, HttpRequest, json_answer
from barnabas.controller.store.store import NoNode, StoreError, check_path
from barnabas.wire.errors import ErrorCode
from barnabas.world.pacing import paced

CHILDREN_MAX = 5000
ANSWER_SECONDS = 5.0
TEXT_MAX = 64 << 10
HIDDEN = "(hidden)"
TOPIC_PARENTS = ("/brokers/topics/", "/config/topics/", "/admin/delete_topics/")
SECRET_NODES = ("/config/users/", "/delegation_token/tokens/")
CONFIG = "/config/"
GROUPS = "/consumers/"
QUOTAS = ("_rate", "_percentage")  # the ends of their names


async def store(life: Life, request: HttpRequest) -> Answer:
    """`GET /v1/store?path=/brokers`: a node's children, data and versions."""
    asking = asking_for(life, request)

    # Kafka's port has no request for a node. These two rights together show the whole cluster and its settings.
    if not (asking.may("Describe", "Cluster") and asking.may("DescribeConfigs", "Cluster")):
        check(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the metadata store")
    path = request.query.get("path", "/")
    if not path.startswith("/") or not shows(asking, path):
        raise BadRequest(f"there is no node {path!r:.200} that you may read", status=404)
    broker_store = asking.broker.store
    try:
        check_path(path)

        # A session that has lost its servers lets its calls wait until it expires.
        with trio.fail_after(ANSWER_SECONDS):
            children = await broker_store.children(path)
            data, stat = (None, None) if path == "/" else await broker_store.get(path)
    except (NoNode, ValueError) as error:
        raise BadRequest(f"there is no node {path!r:.200} that you may read", status=404) from error
    except (StoreError, trio.TooSlowError) as error:
        why = str(error) or f"not within {ANSWER_SECONDS:g} s"
        raise BadRequest(f"the metadata store does not answer: {why}", status=503) from error

    # A parent may have thousands of children, and the page shows the first ones.
    base = path.rstrip("/")
    seen = sorted([child async for child in paced(children) if shows(asking, f"{base}/{child}")])
    return json_answer(
        {
            "path": path,
            "children": seen[:CHILDREN_MAX],
            "child_count": len(seen),
            "data": data_text(path, data),
            "size_bytes": 0 if data is None else len(data),
            "version": None if stat is None else stat.version,
            "is_ephemeral": stat is not None and stat.owner != 0,
        }
    )


def shows(asking: Asking, path: str) -> bool:
    """Whether the caller may see that this node exists."""
    # Below one of these the next part of the path is a topic.
    for parent in TOPIC_PARENTS:
        if path.startswith(parent):
            return asking.sees(path.removeprefix(parent).partition("/")[0])
    if path.startswith(GROUPS):
        return asking.may("Describe", "Group", path.removeprefix(GROUPS).partition("/")[0])
    return True


def data_text(path: str, data: bytes | None) -> str | None:
    """The data as text, without secrets; None for null."""
    if data is None:
        return None
    # Salted passwords can be guessed at, and the HMAC of a token is its password.
    if path.startswith(SECRET_NODES):
        return HIDDEN
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data[:TEXT_MAX].hex()
    if path.startswith(CONFIG):
        text = _without_secrets(text)
    return text[:TEXT_MAX]


def _without_secrets(text: str) -> str:
    """The properties of an entity, of which those that DescribeConfigs hides have no value."""
    try:
        entity = json.loads(text)
    # Another program wrote it. What is not understood is not shown.
    except ValueError:
        return HIDDEN
    properties = entity.get("config") if isinstance(entity, dict) else None
    if not isinstance(properties, dict):
        return text
    shown = {name: value if is_public(name) else HIDDEN for name, value in properties.items()}
    return json.dumps(entity | {"config": shown}, ensure_ascii=False)


def is_public(name: str) -> bool:
    """Whether the value of this property is no secret; a property that is not known may be one."""
    # Quotas are in no table of properties.
    row = BROKER_TABLE.get(name) or TOPIC_TABLE.get(name)
    return (row is not None and not row.sensitive) or name.endswith(QUOTAS)
