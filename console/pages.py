"""The routes of the page: what the browser asks for after it has the static files. All are read only."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from barnabas.broker.life import Life
from barnabas.console import cluster_views, group_views, messages, store_view
from barnabas.console import story as story_view
from barnabas.console.exchange import Answer, HttpRequest, Route
from barnabas.console.feed import Feeds, feed
from barnabas.console.story import Story

View = Callable[[Life, HttpRequest], Awaitable[Answer]]


def page_routes(life: Life, story: Story) -> Sequence[Route]:
    """All of them; each needs a login where Kafka's listeners do."""
    # By path, what answers a GET there. No other method is taken, so nothing can be changed.
    views: dict[str, View] = {
        "/v1/cluster": cluster_views.cluster,
        "/v1/topics": cluster_views.topics,
        "/v1/topics/{topic}": cluster_views.topic,
        "/v1/topics/{topic}/configs": cluster_views.topic_configs,
        "/v1/topics/{topic}/records": messages.records,
        "/v1/topics/{topic}/records/{partition}/{offset}/{part}": messages.part_of_record,
        "/v1/topics/{topic}/download": messages.download,
        "/v1/groups": group_views.groups,
        "/v1/groups/{group}": group_views.group,
        "/v1/transactions": group_views.transactions,
        "/v1/brokers/{broker}/configs": cluster_views.broker_configs,
        "/v1/acls": cluster_views.acls,
        "/v1/quotas": cluster_views.quotas,
        "/v1/store": store_view.store,
    }
    routes = [Route("GET", path, partial(view, life)) for path, view in views.items()]
    routes.append(Route("GET", "/v1/story", partial(story_view.story, life, story)))
    routes.append(Route("GET", "/v1/feed", partial(feed, life, story, Feeds())))
    return routes
