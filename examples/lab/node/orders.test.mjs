// A lost acknowledgement under kafkajs. `barnabas lab --topic orders` runs beside, or BARNABAS_LAB says where.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Kafka } from "kafkajs";

const lab = process.env.BARNABAS_LAB ?? "http://127.0.0.1:9645/v1/";

async function ask(method, path, body) {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(lab + path, { method, headers, body: body && JSON.stringify(body) });
  const found = await answer.json();
  assert.ok(answer.ok, found.error);
  return found;
}

test("an order is written once, although its acknowledgement is lost", async () => {
  await ask("POST", "reset");
  const lost = await ask("POST", "faults", { drop: "Produce", when: "after", topic: "orders", times: 1 });
  const { bootstrap_servers } = await ask("GET", "brokers");
  const kafka = new Kafka({ brokers: bootstrap_servers.split(","), logLevel: 0 });

  const order = `order ${Date.now()}`;
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  await producer.send({ topic: "orders", messages: [{ value: order }] });
  await producer.disconnect();

  assert.equal((await ask("GET", `faults/${lost.id}/wait`)).fired, 1);
  const { records } = await ask("GET", "topics/orders/records");
  assert.equal(records.filter((record) => record.value === order).length, 1);
});
