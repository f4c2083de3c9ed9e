"""What tests share with `test_configs.py`."""

from barnabas.config.alter import Operation
from barnabas.wire import messages as m

SET, DELETE, APPEND, SUBTRACT = Operation


TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def changing(*resources, validate_only=False) -> m.IncrementalAlterConfigsRequest:
    """Resources as (type, name, {property: text, or None to delete, or (operation, text)})."""
    request = m.IncrementalAlterConfigsRequest
    return request(
        resources=[
            request.AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[
                    request.AlterableConfig(name=key, config_operation=each[0], value=each[1])
                    for key, each in ((key, spelled(text)) for key, text in texts.items())
                ],
            )
            for resource_type, name, texts in resources
        ],
        validate_only=validate_only,
    )


def spelled(text):
    if isinstance(text, tuple):
        return text
    return (DELETE, None) if text is None else (SET, text)


def replacing(resource_type, name, texts, *, validate_only=False) -> m.AlterConfigsRequest:
    request = m.AlterConfigsRequest
    configs = [request.AlterableConfig(name=key, value=text) for key, text in texts.items()]
    resource = request.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
    return request(resources=[resource], validate_only=validate_only)


async def alter(client, *resources, **options):
    """The code and message of each resource."""
    answer = await client.ask(changing(*resources, **options))
    return [(row.error_code, row.error_message) for row in answer.responses]


async def altered(client, resource_type, name, **texts):
    """Alter one resource, which must succeed; underscores are dots."""
    dotted = {key.replace("_", "."): text for key, text in texts.items()}
    assert await alter(client, (resource_type, name, dotted)) == [(0, None)]


async def describe(client, resource_type, name, *keys, version=4, **options):
    asked = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=list(keys) or None
    )
    return (await client.ask(m.DescribeConfigsRequest(resources=[asked], **options), version)).results[0]
