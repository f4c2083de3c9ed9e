"""smoke"""
import time
import trio
from tests.broker.harness import Machine, values_in

async def test_smoke(nursery, autojump_clock):
    t=time.perf_counter()
    machine = await Machine(nursery).start()
    print("start", time.perf_counter()-t); t=time.perf_counter()
    c = await machine.connect()
    await c.create_topic("t")
    print("create", time.perf_counter()-t); t=time.perf_counter()
    assert (await c.produce("t", b"hello")).base_offset == 0
    print(await c.fetch("t"))
    assert values_in(await c.fetch("t")) == [b"hello"]
    print("pf", time.perf_counter()-t); t=time.perf_counter()
    await machine.stop()
    print("stop", time.perf_counter()-t); t=time.perf_counter()
    await machine.start()
    print("start", time.perf_counter()-t); t=time.perf_counter()
    await machine.cut_power(1)
    print("crash", time.perf_counter()-t); t=time.perf_counter()
    await machine.start()
    print("start", time.perf_counter()-t); t=time.perf_counter()
    c = await machine.connect()
    print(await c.read_values("t"), trio.current_time())
    print("x", time.perf_counter()-t); t=time.perf_counter()
