"""What tests share with `test_shards.py`."""


async def house_with_partitions(open_house, count, **options):
    """A house with a topic of so many partitions, and a list of what goes into threads."""
    house, threads = await open_house(**options), []
    house.know_topic("t", count)
    in_thread = house.world.in_request_thread

    async def noting(function, *args):
        threads.append(function)
        return await in_thread(function, *args)

    house.world.in_request_thread = noting
    return house, threads


def while_in_thread(house, happens):
    """Let something happen while work is in a thread."""
    in_thread = house.world.in_request_thread

    async def interrupted(function, *args):
        result = await in_thread(function, *args)
        house.world.in_request_thread = in_thread
        await happens()
        return result

    house.world.in_request_thread = interrupted
