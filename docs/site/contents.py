"""The navigation of the site: which pages there are, and in which order.

A page of the repository that is in no table here is not on the site; `tests/test_site.py` names those.
"""

from sphinx.application import Sphinx

# Caption -> pages, each named by its path without `.md`.
CONTENTS = {
    "Begin": [
        "docs/why",
        "docs/done",
        "docs/how-fast",
        "docs/coming-from",
        "docs/testing",
        "docs/lab",
        "docs/tour",
        "examples/README",
        "examples/lab/README",
        "docker/README",
        "CHANGELOG",
    ],
    "Reference": [
        "docs/commands",
        "docs/commands-on-screen",
        "docs/reference/commands",
        "docs/configuration",
        "docs/metrics",
        "docs/reference/apis",
        "docs/reference/errors",
        "docs/reference/wire",
        "docs/reference/kafka-internals",
    ],
    "Run it": [
        "docs/cluster",
        "docs/operations",
        "docs/security",
        "docs/transactions",
        "docs/console",
        "docs/spark",
        "docs/exchange",
        "docs/scale",
        "docs/compiled",
    ],
    "Measured": [
        "docs/compatibility",
        "docs/faults",
        "docs/performance",
        "docs/performance-cluster",
        "docs/performance-growth",
        "docs/performance-tls",
        "docs/performance-transactions",
    ],
    "How it works": [
        "docs/README",
        "docs/architecture",
        "docs/simulation",
        "wire/README",
        "storage/README",
        "replication/README",
        "coordinators/README",
        "coordinators/runtime/README",
        "coordinators/groups/README",
        "coordinators/groups/classic/README",
        "coordinators/transactions/README",
        "quotas/README",
        "controller/README",
        "broker/README",
        "broker/handlers/README",
        "security/README",
        "config/README",
        "world/README",
        "client/README",
        "console/README",
        "cli/README",
        "testing/README",
        "pipeline/README",
    ],
    "Work on it": [
        "CONTRIBUTING",
        "tests/README",
        "bench/README",
        "compat_tests/README",
        "compat_tests/differential/README",
        "compat_tests/faults/README",
        "compat_tests/cluster/README",
        "compat_tests/hostile/README",
        "compat_tests/security/README",
        "compat_tests/metrics/README",
        "compat_tests/copier/README",
        "compat_tests/streams/README",
        "compat_tests/spark/README",
        "compat_tests/spark/FINDINGS",
        "compat_tests/clients/README",
        "compat_tests/clients/aiokafka/FINDINGS",
        "compat_tests/clients/confluent_kafka/FINDINGS",
        "compat_tests/clients/franz_go/FINDINGS",
        "compat_tests/clients/java/FINDINGS",
        "compat_tests/clients/kafka_python/FINDINGS",
        "compat_tests/clients/kafkajs/FINDINGS",
        "compat_tests/clients/kcat/FINDINGS",
        "compat_tests/clients/node_rdkafka/FINDINGS",
        "compat_tests/clients/rdkafka/FINDINGS",
        "compat_tests/clients/rskafka/FINDINGS",
    ],
}


def add_navigation(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append the table of contents to the first page, which a code host shows without it."""
    if docname == app.config.root_doc:
        for caption, pages in CONTENTS.items():
            listed = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Add what this file does to Sphinx."""
    app.connect("source-read", add_navigation)
    return {"parallel_read_safe": True}
