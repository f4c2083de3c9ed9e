"""What concerns the cluster as a whole: its description, features, elections, reassignments, more partitions."""

from barnabas.wire import messages as m
from compat_tests.differential.scenario import scenario

TIMEOUT_MS = 10_000


@scenario
def the_cluster_is_described(side):
    for version in range(2):
        cases = {
            "plain": m.DescribeClusterRequest(),
            "authorized operations": m.DescribeClusterRequest(include_cluster_authorized_operations=True),
        }
        if version:
            for kind in (2, 0, 9):
                cases[f"endpoints {kind}"] = m.DescribeClusterRequest(endpoint_type=kind)
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def features_are_updated(side):
    Update = m.UpdateFeaturesRequest.FeatureUpdateKey
    for version in range(2):
        cases = {
            "unknown": [Update(feature="nope", max_version_level=1)],
            "metadata.version": [Update(feature="metadata.version", max_version_level=20)],
            "level 0": [Update(feature="nope", max_version_level=0)],
            "negative": [Update(feature="nope", max_version_level=-1)],
            "empty name": [Update(feature="", max_version_level=1)],
            "twice": [Update(feature="nope", max_version_level=1)] * 2,
            "twice, and another": [
                Update(feature=feature, max_version_level=level) for feature, level in (("x", 5), ("y", 1), ("x", 0))
            ],
            "downgrade": [Update(feature="nope", allow_downgrade=True)],
            "level 5, safe downgrade": [Update(feature="nope", max_version_level=5, upgrade_type=2)],
            **{f"upgrade type {kind}": [Update(feature="nope", upgrade_type=kind)] for kind in (0, 2, 3, 9)},
            "nothing": [],
        }
        requests = {
            name: m.UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=updates)
            for name, updates in cases.items()
        }
        with side.connect() as client:
            yield from client.ask_all(version, requests)


def _more(*topics, validate_only=False, timeout_ms=TIMEOUT_MS):
    """[(topic, count[, brokers of each new partition])]"""
    Topic, Assigned = (
        m.CreatePartitionsRequest.CreatePartitionsTopic,
        m.CreatePartitionsRequest.CreatePartitionsAssignment,
    )
    rows = []
    for name, count, *assigned in topics:
        brokers = [Assigned(broker_ids=ids) for ids in assigned[0]] if assigned else None
        rows.append(Topic(name=name, count=count, assignments=brokers))
    return m.CreatePartitionsRequest(topics=rows, timeout_ms=timeout_ms, validate_only=validate_only)


@scenario
def partitions_are_added(side):
    unknown = side.name("unknown")
    for version in range(4):
        topic, other = side.create_topic(f"{version}-one", 2), side.create_topic(f"{version}-two")
        cases = {
            "validate": _more((topic, 3), validate_only=True),
            "one more": _more((topic, 3)),
            "as many": _more((topic, 3)),
            "fewer": _more((topic, 1)),
            "none": _more((topic, 0)),
            "-1": _more((topic, -1)),
            "unknown topic": _more((unknown, 3)),
            "bad name": _more(("..", 3)),
            "empty name": _more(("", 3)),
            "internal": _more(("__consumer_offsets", 1)),
            "assigned": _more((topic, 5, [[1], [1]])),
            "assigned too few": _more((topic, 7, [[1]])),
            "assigned too many": _more((topic, 6, [[1], [1]])),
            "assigned to an unknown broker": _more((topic, 6, [[7]])),
            "assigned twice to one broker": _more((topic, 6, [[1, 1]])),
            "assigned to none": _more((topic, 6, [[]])),
            "assigned to different numbers": _more((topic, 7, [[1], [1, 2]])),
            "no assignments": _more((topic, 6, [])),
            "a topic twice": _more((topic, 8), (topic, 9)),
            "nothing": _more(),
            "good and bad": _more((other, 2), (unknown, 2), (topic, 1)),
            "timeout 0": _more((other, 3), timeout_ms=0),
            "timeout -1": _more((other, 4), timeout_ms=-1),
        }
        with side.connect() as client:
            client.ask(m.FindCoordinatorRequest(key="warm"), 0)
            yield from client.ask_all(version, cases)
