"""Setting up /feature: the first thing that a new controller writes (KIP-584; reference B.2).

The node has the finalized features and their levels. Brokers that keep their metadata in ZooKeeper support none, so
there is nothing to finalize; but a Java broker that becomes the controller reads the node. If the node is absent it is
created, enabled or disabled as `inter.broker.protocol.version` implies. Otherwise only this flag and the version are
brought in line: finalized levels are kept while features stay enabled.
"""

import logging

from barnabas.controller.context import ControllerContext
from barnabas.controller.image import loading
from barnabas.controller.store import paths
from barnabas.controller.store.paths import FeatureNode
from barnabas.controller.store.store import Create, NodeError, NoNode, Op, SetData

logger = logging.getLogger(__name__)


async def set_up_features(context: ControllerContext) -> None:
    """Bring /feature in line with our metadata version."""
    while True:
        try:
            data, stat = await context.store.get(paths.FEATURE)
        except NoNode:
            op: Op = Create(paths.FEATURE, _wanted(context, None).encode())
        else:
            found = loading.parse(FeatureNode.decode, data, paths.FEATURE)
            wanted = _wanted(context, found)
            if found == wanted:
                return
            op = SetData(paths.FEATURE, wanted.encode(), stat.version)
        (outcome,) = await context.write([[op]])
        # The write is refused if the node has changed since it was read. The change may be our own
        # write, whose answer was lost: then the next read finds the wanted content.
        if not isinstance(outcome, NodeError):
            return


def _wanted(context: ControllerContext, found: FeatureNode | None) -> FeatureNode:
    version = context.metadata_version
    finalized = found.max_version_levels if found is not None and found.enabled else {}
    # Levels that were finalized mean nothing to brokers below 2.7, and are lost in a downgrade, as
    # in Kafka.
    if finalized and not version.features_enabled:
        logger.warning("features are disabled, and their levels dropped: %s", ", ".join(finalized))
    levels = finalized if version.features_enabled else {}
    return FeatureNode(version.features_enabled, levels, version.feature_node_version)
