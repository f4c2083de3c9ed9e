// kafkajs over TLS and SASL: the program of ../access.py.

import { readFileSync } from "node:fs";
import kafkajs from "kafkajs";

const { Kafka, logLevel } = kafkajs;
const SECONDS_MAX = 60;
const PACE_MS = 20;
const BATCH = 1000;

const access = JSON.parse(readFileSync(process.argv[2], "utf8"));

function loginOf({ mechanism, username, password, token }) {
  if (!mechanism) return undefined;
  if (mechanism === "OAUTHBEARER") {
    return { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: token }) };
  }
  return { mechanism: mechanism.toLowerCase(), username, password };
}

function tlsOf({ protocol, authority, certificate, key }) {
  if (!protocol.endsWith("SSL")) return undefined;
  const own = certificate ? { cert: readFileSync(certificate), key: readFileSync(key) } : {};
  return { ca: [readFileSync(authority)], ...own };
}

function connect(more = {}) {
  return new Kafka({
    clientId: "kafkajs",
    brokers: access.bootstrap.split(","),
    ssl: tlsOf(access),
    sasl: loginOf(access),
    logLevel: logLevel.NOTHING,
    // By default it logs in again when ten seconds of a session are left: at every request, if a session has no more.
    reauthenticationThreshold: 2000,
    ...more,
  });
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function reader(kafka, eachMessage) {
  const consumer = kafka.consumer({ groupId: access.group });
  await consumer.connect();
  await consumer.subscribe({ topics: [access.topic], fromBeginning: true });
  await consumer.run({ eachMessage });
  return consumer;
}

async function once() {
  const kafka = connect();
  const producer = kafka.producer();
  await producer.connect();
  for (let first = 0; first < access.records; first += BATCH) {
    const count = Math.min(BATCH, access.records - first);
    const messages = Array.from({ length: count }, (_, index) => ({ value: String(first + index) }));
    await producer.send({ topic: access.topic, messages });
  }
  await producer.disconnect();
  const read = new Set();
  const consumer = await reader(kafka, async ({ message }) => read.add(message.value.toString()));
  const until = Date.now() + SECONDS_MAX * 1000;
  while (read.size < access.records && Date.now() < until) await pause(10);
  await consumer.disconnect();
  return { read: read.size };
}

async function refused() {
  const producer = connect({ retry: { retries: 1 } }).producer();
  try {
    await producer.connect();
    await producer.send({ topic: access.topic, messages: [{ value: "x" }] });
  } catch (error) {
    return { refused: `${error.name}: ${error.message}` };
  }
  throw new Error("written");
}

async function steady() {
  const kafka = connect();
  const errors = [];
  const producer = kafka.producer();
  let written = 0;
  let read = 0;
  await producer.connect();
  const consumer = await reader(kafka, async () => read++);
  consumer.on(consumer.events.CRASH, ({ payload }) => errors.push(String(payload.error)));
  const until = Date.now() + access.seconds * 1000;
  while (Date.now() < until) {
    const next = pause(PACE_MS);
    try {
      await producer.send({ topic: access.topic, messages: [{ value: String(written++) }] });
    } catch (error) {
      errors.push(String(error));
    }
    await next;
  }
  const last = Date.now() + SECONDS_MAX * 1000;
  while (read < written && Date.now() < last) await pause(10);
  await producer.disconnect();
  await consumer.disconnect();
  return { written, read, errors };
}

console.log(JSON.stringify(await { once, refused, steady }[access.mode]()));
process.exit(0);
