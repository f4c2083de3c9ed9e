"""Setting up /feature: the first thing that a new controller writes (KIP-584; reference B.2).

The node says whether the cluster finalizes features, and at which levels. Brokers that keep their metadata in ZooKeeper
support none, so there is nothing to finalize; but other controllers, which may come from a Java broker, look at the
node. It is created when it is absent, enabled or disabled as the level of `inter.broker.protocol.version` wants it, and
else left alone: levels that were finalized are kept while features stay enabled.
"""

import logging

from barnabas.controller.context import ControllerContext
from barnabas.controller.image import loading
from barnabas.controller.store import paths
from barnabas.controller.store.paths import FeatureNode
from barnabas.controller.store.store import Create, NodeError, NoNode, Op, SetData

logger = logging.getLogger(__name__)


async def set_up_features(context: ControllerContext) -> None:
    """Bring /feature in line with our level."""
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
        if not isinstance(outcome, NodeError):
            return


def _wanted(context: ControllerContext, found: FeatureNode | None) -> FeatureNode:
    level = context.level
    finalized = found.max_version_levels if found is not None and found.enabled else {}
    if finalized and not level.features_enabled:
        logger.warning("features are disabled, and their levels dropped: %s", ", ".join(finalized))
    levels = finalized if level.features_enabled else {}
    return FeatureNode(level.features_enabled, levels, level.feature_node_version)
