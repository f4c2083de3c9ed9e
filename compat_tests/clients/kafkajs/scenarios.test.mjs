// Every feature of kafkajs' producer, consumer and admin client against the broker at COMPAT_BOOTSTRAP.
//
// Run by node's own test runner. Each test has topics and groups of its own, so that none depends on another.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, before, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'

const {
  AclOperationTypes,
  AclPermissionTypes,
  AclResourceTypes,
  CompressionCodecs,
  CompressionTypes,
  ConfigResourceTypes,
  ConfigSource,
  Kafka,
  Partitioners,
  ResourcePatternTypes,
  logLevel,
} = kafkajs

CompressionCodecs[CompressionTypes.Snappy] = snappy

const kafka = new Kafka({
  brokers: process.env.COMPAT_BOOTSTRAP.split(','),
  clientId: 'compat-kafkajs',
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, retries: 5 },
})
const admin = kafka.admin()
const DEADLINE_MS = 20000

before(() => admin.connect())
after(() => admin.disconnect())

async function newTopic(numPartitions = 1, configEntries = []) {
  const topic = `kafkajs-${randomUUID()}`
  await admin.createTopics({ topics: [{ topic, numPartitions, configEntries }] })
  return topic
}

// Each look may ask another broker, and not all hear of a change at once.
async function until(look) {
  const deadline = Date.now() + DEADLINE_MS
  for (;;) {
    const seen = await look()
    if (seen) return seen
    assert.ok(Date.now() < deadline, `timed out waiting for ${look}`)
    await pause(20)
  }
}

const partitionsOf = (topic, count) =>
  until(async () => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return topics[0].partitions.length === count && topics[0].partitions
  })

async function producing(options, use) {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, ...options })
  await producer.connect()
  try {
    return await use(producer)
  } finally {
    await producer.disconnect()
  }
}

const produce = (topic, messages, options = {}) =>
  producing({}, producer => producer.send({ topic, messages, ...options }))

// A promise that a callback keeps, and that says what it waited for when it is not kept.
function awaited(what) {
  let keep
  const kept = new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`timed out waiting for ${what}`)), DEADLINE_MS)
    keep = value => {
      clearTimeout(timer)
      resolve(value)
    }
  })
  return { kept, keep }
}

// kafkajs sends heartbeats, and leaves, only between two fetches: they are kept short.
async function consuming(options, use) {
  const consumer = kafka.consumer({ groupId: `group-${randomUUID()}`, maxWaitTimeInMs: 200, ...options })
  await consumer.connect()
  try {
    return await use(consumer)
  } finally {
    await consumer.disconnect()
  }
}

// Read `count` messages of the topics, from the beginning unless the group has offsets.
function consume(topics, count, { run = {}, fromBeginning = true, ...options } = {}) {
  return consuming(options, async consumer => {
    const messages = []
    const { kept, keep } = awaited(`${count} messages of ${topics}`)
    await consumer.subscribe({ topics, fromBeginning })
    await consumer.run({
      ...run,
      eachMessage: async ({ topic, partition, message }) => {
        messages.push({ ...message, topic, partition })
        if (messages.length === count) keep()
      },
    })
    await kept
    return messages
  })
}

const numbers = count => Array.from({ length: count }, (_, number) => number)
const texts = messages => messages.map(({ value }) => value?.toString())
const valued = values => values.map(value => ({ value: `${value}` }))

// -- producer

for (const [name, compression] of Object.entries({
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
})) {
  test(`a batch compressed with ${name} comes back in order`, async () => {
    const topic = await newTopic()
    const [sent] = await produce(topic, valued(numbers(500)), { compression })
    assert.deepEqual([sent.errorCode, sent.baseOffset, sent.logStartOffset], [0, '0', '0'])
    assert.deepEqual(texts(await consume([topic], 500)), numbers(500).map(String))
  })
}

test('keys, headers, timestamps and null values come back', async () => {
  const topic = await newTopic()
  const timestamp = `${Date.now() - 60000}`
  const headers = { single: 'one', several: ['first', 'second'] }
  await produce(topic, [{ key: 'key', value: 'value', headers, timestamp }, { key: 'gone', value: null }])
  const [first, second] = await consume([topic], 2)
  assert.deepEqual([first.key.toString(), first.value.toString(), first.timestamp], ['key', 'value', timestamp])
  assert.deepEqual(first.headers.single.toString(), 'one')
  assert.deepEqual(first.headers.several.map(String), ['first', 'second'])
  assert.deepEqual([second.key.toString(), second.value, second.offset], ['gone', null, '1'])
})

test('the same key goes to the same partition, and a partition may be named', async () => {
  const topic = await newTopic(3)
  await produce(topic, [...valued(numbers(6)).map(message => ({ ...message, key: 'same' })), { value: 'x', partition: 2 }])
  const messages = await consume([topic], 7)
  assert.equal(new Set(messages.filter(({ key }) => key).map(({ partition }) => partition)).size, 1)
  assert.equal(messages.find(({ key }) => !key).partition, 2)
})

test('one batch reaches several topics', async () => {
  const topics = [await newTopic(), await newTopic()]
  await producing({}, producer =>
    producer.sendBatch({ topicMessages: topics.map(topic => ({ topic, messages: valued([topic]) })) })
  )
  assert.deepEqual(texts(await consume(topics, 2)).sort(), [...topics].sort())
})

for (const acks of [0, 1, -1]) {
  test(`acks=${acks} delivers`, async () => {
    const topic = await newTopic()
    await produce(topic, valued(['heard']), { acks })
    assert.deepEqual(texts(await consume([topic], 1)), ['heard'])
  })
}

test('an idempotent producer delivers many concurrent batches, each once', async () => {
  const topic = await newTopic()
  await producing({ idempotent: true, maxInFlightRequests: 1 }, async producer => {
    await Promise.all(numbers(50).map(number => producer.send({ topic, messages: valued([number]) })))
  })
  // In which order its queue lets them go is kafkajs' own affair.
  assert.deepEqual(texts(await consume([topic], 50)).sort(), numbers(50).map(String).sort())
})

test('a topic is created on first use', async () => {
  const topic = `kafkajs-${randomUUID()}`
  await producing({ allowAutoTopicCreation: true }, producer => producer.send({ topic, messages: valued(['first']) }))
  assert.deepEqual(texts(await consume([topic], 1)), ['first'])
})

test('a batch that is too large is refused', async () => {
  const topic = await newTopic(1, [{ name: 'max.message.bytes', value: '1000' }])
  await assert.rejects(produce(topic, valued(['x'.repeat(2000)])), /larger than the max message size/)
})

test('a transaction is seen when it is committed, and not when it is aborted', async () => {
  const topic = await newTopic()
  const options = { transactionalId: topic, idempotent: true, maxInFlightRequests: 1 }
  await producing(options, async producer => {
    const aborted = await producer.transaction()
    await aborted.send({ topic, messages: valued(['aborted']) })
    await aborted.abort()
    const committed = await producer.transaction()
    await committed.send({ topic, messages: valued(['committed']) })
    await committed.commit()
  })
  assert.deepEqual(texts(await consume([topic], 1)), ['committed'])
})

test('offsets are committed with a transaction', async () => {
  const topic = await newTopic()
  const groupId = `group-${randomUUID()}`
  const options = { transactionalId: topic, idempotent: true, maxInFlightRequests: 1 }
  await producing(options, async producer => {
    const transaction = await producer.transaction()
    await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic, partitions: [{ partition: 0, offset: '7' }] }] })
    await transaction.commit()
  })
  // The end of a transaction is answered before its markers, which make the offsets valid, are written.
  const deadline = Date.now() + DEADLINE_MS
  let offset
  do [{ partitions: [{ offset }] }] = await admin.fetchOffsets({ groupId, topics: [topic] })
  while (offset !== '7' && Date.now() < deadline)
  assert.equal(offset, '7')
})

// -- consumer

test('a group goes on where it stopped', async () => {
  const topic = await newTopic()
  const groupId = `group-${randomUUID()}`
  await produce(topic, valued([1, 2]))
  await consume([topic], 2, { groupId })
  await produce(topic, valued([3]))
  assert.deepEqual(texts(await consume([topic], 1, { groupId })), ['3'])
})

test('without the beginning only new messages are read', async () => {
  const topic = await newTopic()
  await produce(topic, valued(['old']))
  await consuming({}, async consumer => {
    const { kept, keep } = awaited('the new message')
    const joined = awaited('the group')
    consumer.on(consumer.events.FETCH_START, () => joined.keep())
    await consumer.subscribe({ topics: [topic] })
    await consumer.run({ eachMessage: async ({ message }) => keep(message.value.toString()) })
    await joined.kept
    await produce(topic, valued(['new']))
    assert.equal(await kept, 'new')
  })
})

test('a group subscribes by regular expression', async () => {
  const prefix = `kafkajs-${randomUUID()}`
  const topics = [`${prefix}-a`, `${prefix}-b`]
  await admin.createTopics({ topics: topics.map(topic => ({ topic })) })
  for (const topic of topics) await produce(topic, valued([topic]))
  assert.deepEqual(texts(await consume([new RegExp(`^${prefix}-.$`)], 2)).sort(), topics)
})

test('a batch is resolved and committed by hand', async () => {
  const topic = await newTopic()
  const groupId = `group-${randomUUID()}`
  await produce(topic, valued(numbers(10)))
  await consuming({ groupId }, async consumer => {
    const { kept, keep } = awaited('the batch')
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({
      eachBatchAutoResolve: false,
      eachBatch: async ({ batch, resolveOffset, heartbeat, commitOffsetsIfNecessary, uncommittedOffsets }) => {
        for (const { offset } of batch.messages.slice(0, 4)) resolveOffset(offset)
        await heartbeat()
        await commitOffsetsIfNecessary(uncommittedOffsets())
        keep([batch.highWatermark, batch.firstOffset(), batch.lastOffset()])
      },
    })
    assert.deepEqual(await kept, ['10', '0', '9'])
  })
  const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] })
  assert.equal(partitions[0].offset, '4')
})

test('offsets are committed with metadata', async () => {
  const topic = await newTopic()
  const groupId = `group-${randomUUID()}`
  await produce(topic, valued(numbers(5)))
  await consuming({ groupId }, async consumer => {
    const { kept, keep } = awaited('the first message')
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({ autoCommit: false, eachMessage: async () => keep() })
    await kept
    await consumer.commitOffsets([{ topic, partition: 0, offset: '3', metadata: 'three' }])
  })
  const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] })
  assert.deepEqual([partitions[0].offset, partitions[0].metadata], ['3', 'three'])
})

test('a consumer seeks', async () => {
  const topic = await newTopic()
  await produce(topic, valued(numbers(10)))
  await consuming({}, async consumer => {
    const { kept, keep } = awaited('the last message')
    const seen = []
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({
      eachMessage: async ({ message }) => {
        seen.push(message.offset)
        if (message.offset === '9') keep()
      },
    })
    consumer.seek({ topic, partition: 0, offset: '7' })
    await kept
    assert.deepEqual(seen.slice(-3), ['7', '8', '9'])
  })
})

test('a paused topic is silent until it is resumed', async () => {
  const [loud, quiet] = [await newTopic(), await newTopic()]
  await consuming({}, async consumer => {
    const seen = []
    const [loudSeen, quietSeen] = [awaited('the topic that is not paused'), awaited('the topic that was')]
    await consumer.subscribe({ topics: [loud, quiet], fromBeginning: true })
    await consumer.run({
      eachMessage: async ({ topic }) => {
        seen.push(topic)
        ;(topic === loud ? loudSeen : quietSeen).keep()
      },
    })
    consumer.pause([{ topic: quiet }])
    await produce(quiet, valued([1]))
    await produce(loud, valued([2]))
    await loudSeen.kept
    assert.deepEqual(seen, [loud])
    assert.deepEqual(consumer.paused(), [{ topic: quiet, partitions: [0] }])
    consumer.resume([{ topic: quiet }])
    await quietSeen.kept
  })
})

test('partitions are consumed concurrently', async () => {
  const topic = await newTopic(3)
  await produce(topic, numbers(3).map(partition => ({ value: `${partition}`, partition })))
  const together = awaited('three partitions at a time')
  let running = 0
  await consuming({}, async consumer => {
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({
      partitionsConsumedConcurrently: 3,
      eachMessage: async () => {
        running += 1
        if (running === 3) together.keep()
        await together.kept
      },
    })
    await together.kept
  })
})

test('a second member takes its share, and gives it back', async () => {
  const topic = await newTopic(4)
  const groupId = `group-${randomUUID()}`
  const member = async use =>
    consuming({ groupId, heartbeatInterval: 200 }, async consumer => {
      const joins = []
      const changed = []
      consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
        joins.push(payload.memberAssignment[topic] ?? [])
        changed.forEach(check => check())
      })
      const share = (what, size) => {
        const { kept, keep } = awaited(what)
        const check = () => joins.at(-1)?.length === size && keep()
        changed.push(check)
        check()
        return kept
      }
      await consumer.subscribe({ topics: [topic] })
      await consumer.run({ eachMessage: async () => {} })
      await use(share, consumer)
    })
  await member(async (shareOfFirst, first) => {
    await shareOfFirst('all partitions', 4)
    await member(async shareOfSecond => {
      await Promise.all([shareOfFirst('half of them', 2), shareOfSecond('the other half', 2)])
      const { members, state } = await first.describeGroup()
      assert.deepEqual([members.length, state], [2, 'Stable'])
    })
    await shareOfFirst('all partitions again', 4)
  })
})

test('only what is committed is read', async () => {
  const topic = await newTopic()
  await produce(topic, valued(['plain']))
  for (const readUncommitted of [false, true]) {
    assert.deepEqual(texts(await consume([topic], 1, { readUncommitted })), ['plain'])
  }
})

test('many bytes are read in small fetches', async () => {
  const topic = await newTopic()
  for (const number of numbers(20)) await produce(topic, valued([`${number}`.padEnd(50000, '.')]))
  const messages = await consume([topic], 20, { maxBytesPerPartition: 60000, maxBytes: 100000, minBytes: 10 })
  assert.deepEqual(texts(messages).map(parseFloat), numbers(20))
})

// -- admin client

test('topics are created, listed, described and deleted', async () => {
  const topic = await newTopic(3)
  await until(async () => (await admin.listTopics()).includes(topic))
  assert.deepEqual((await partitionsOf(topic, 3)).map(({ partitionId }) => partitionId).sort(), [0, 1, 2])
  await admin.deleteTopics({ topics: [topic] })
  await until(async () => !(await admin.listTopics()).includes(topic))
})

test('a topic that exists is not created, and what is only validated neither', async () => {
  const topic = await newTopic()
  assert.equal(await admin.createTopics({ topics: [{ topic }] }), false)
  await admin.createTopics({ validateOnly: true, waitForLeaders: false, topics: [{ topic: `${topic}-2` }] })
  assert.ok(!(await admin.listTopics()).includes(`${topic}-2`))
  const tooMany = { topic: `${topic}-3`, replicationFactor: 7 }
  await assert.rejects(admin.createTopics({ topics: [tooMany] }), error =>
    error.errors.some(({ type }) => type === 'INVALID_REPLICATION_FACTOR')
  )
})

test('the replicas of a new topic are named', async () => {
  const topic = `kafkajs-${randomUUID()}`
  const { brokers } = await admin.describeCluster()
  const replicaAssignment = [0, 1].map(partition => ({ partition, replicas: [brokers[0].nodeId] }))
  await admin.createTopics({ topics: [{ topic, replicaAssignment }] })
  await partitionsOf(topic, 2)
})

test('partitions are added', async () => {
  const topic = await newTopic()
  await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
  await partitionsOf(topic, 3)
  await assert.rejects(admin.createPartitions({ topicPartitions: [{ topic, count: 2 }] }))
})

test('the cluster is described', async () => {
  const { brokers, controller, clusterId } = await admin.describeCluster()
  const addresses = brokers.map(({ host, port }) => `${host}:${port}`).sort()
  assert.deepEqual(addresses, process.env.COMPAT_BOOTSTRAP.split(',').sort())
  assert.ok(brokers.some(({ nodeId }) => nodeId === controller))
  assert.ok(clusterId.length > 0)
})

test('offsets of a topic are found, also by time', async () => {
  const topic = await newTopic()
  const now = Date.now()
  await produce(topic, numbers(4).map(number => ({ value: 'x', timestamp: `${now + number * 10}` })))
  assert.deepEqual(await admin.fetchTopicOffsets(topic), [{ partition: 0, offset: '4', high: '4', low: '0' }])
  assert.deepEqual(await admin.fetchTopicOffsetsByTimestamp(topic, now + 15), [{ partition: 0, offset: '2' }])
  assert.deepEqual(await admin.fetchTopicOffsetsByTimestamp(topic, now + 99), [{ partition: 0, offset: '4' }])
})

test('offsets of a group are set and reset', async () => {
  const topic = await newTopic()
  const groupId = `group-${randomUUID()}`
  await produce(topic, valued(numbers(5)))
  const committed = async () => (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions[0].offset
  assert.equal(await committed(), '-1')
  await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '3' }] })
  assert.equal(await committed(), '3')
  await admin.resetOffsets({ groupId, topic, earliest: true })
  const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic], resolveOffsets: true })
  assert.equal(partitions[0].offset, '0')
})

test('groups are listed, described and deleted', async () => {
  const topic = await newTopic()
  const groupId = `group-${randomUUID()}`
  await produce(topic, valued([1]))
  await consume([topic], 1, { groupId })
  assert.ok((await admin.listGroups()).groups.some(group => group.groupId === groupId))
  const { groups } = await admin.describeGroups([groupId])
  assert.deepEqual([groups[0].state, groups[0].protocolType], ['Empty', 'consumer'])
  await admin.deleteGroups([groupId])
  assert.ok(!(await admin.listGroups()).groups.some(group => group.groupId === groupId))
  await assert.rejects(admin.deleteGroups([groupId]), error => error.groups[0].errorCode === 69)
})

test('the configuration of a topic is described and altered', async () => {
  const topic = await newTopic(1, [{ name: 'retention.ms', value: '3600000' }])
  const retention = async () => {
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    const { resources } = await admin.describeConfigs({ includeSynonyms: true, resources: [resource] })
    return resources[0].configEntries.find(({ configName }) => configName === 'retention.ms')
  }
  const { configValue, configSource, isDefault } = await retention()
  assert.deepEqual([configValue, configSource, isDefault], ['3600000', ConfigSource.TOPIC_CONFIG, false])
  const configEntries = [{ name: 'retention.ms', value: '7200000' }]
  await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }] })
  assert.equal((await retention()).configValue, '7200000')
})

test('the configuration of a broker is described', async () => {
  const { brokers } = await admin.describeCluster()
  const resource = { type: ConfigResourceTypes.BROKER, name: `${brokers[0].nodeId}`, configNames: ['num.partitions'] }
  const { resources } = await admin.describeConfigs({ resources: [resource] })
  assert.deepEqual(resources[0].configEntries.map(({ configName }) => configName), ['num.partitions'])
})

test('records are deleted', async () => {
  const topic = await newTopic()
  await produce(topic, valued(numbers(5)))
  await admin.fetchTopicOffsets(topic) // makes the client learn the leader, which deleteTopicRecords itself forgets to do
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '3' }] })
  assert.deepEqual(await admin.fetchTopicOffsets(topic), [{ partition: 0, offset: '5', high: '5', low: '3' }])
  assert.deepEqual(texts(await consume([topic], 2)), ['3', '4'])
})

test('reassignments are listed and asked for', async () => {
  const topic = await newTopic()
  const [{ replicas }] = await partitionsOf(topic, 1)
  const partitionAssignment = [{ partition: 0, replicas }]
  await admin.alterPartitionReassignments({ topics: [{ topic, partitionAssignment }] })
  const { topics } = await admin.listPartitionReassignments({ topics: [{ topic, partitions: [0] }] })
  assert.deepEqual(topics, [])
})

const acl = {
  resourceType: AclResourceTypes.TOPIC,
  resourceName: 'anything',
  resourcePatternType: ResourcePatternTypes.LITERAL,
  principal: 'User:olga',
  host: '*',
  operation: AclOperationTypes.ALL,
  permissionType: AclPermissionTypes.ALLOW,
}

test('without an authorizer ACLs are refused', async () => {
  const isDisabled = error => /SECURITY_DISABLED|Security features are disabled/.test(`${error.type} ${error.message}`)
  await assert.rejects(admin.createAcls({ acl: [acl] }), isDisabled)
  await assert.rejects(admin.describeAcls(acl), isDisabled)
  await assert.rejects(admin.deleteAcls({ filters: [acl] }), isDisabled)
})
