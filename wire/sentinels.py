"""Numbers with a special meaning in Kafka's requests, responses and files."""

# The leader of a partition, and epochs.
NO_LEADER = -1
LEADER_DURING_DELETE = -2  # of a topic that is being deleted
NO_LEADER_EPOCH = -1
CONSUMER = -1  # the replica id in requests of consumers
UNKNOWN_BROKER_EPOCH = -1

# Offsets. All but the first are timestamps in ListOffsets requests, and mean an offset of the log.
NO_OFFSET = -1
LATEST = -1
EARLIEST = -2
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

NO_TIMESTAMP = -1
# Java's largest long: a setting of this many milliseconds never expires.
NEVER_MS = 2**63 - 1
NO_PRODUCER_ID = -1

# Produce and Fetch.
ACKS_ALL = -1
READ_COMMITTED = 1
READ_UNCOMMITTED = 0
FETCH_BY_NAME_VERSION = 12  # the last version of Fetch in which topics have names
FETCH_TOPIC_ID_VERSION = 13  # from this version on Fetch has topic ids instead of names (KIP-516)
FETCH_REPLICA_STATE_VERSION = 15  # from this version on a follower's Fetch has its broker epoch (KIP-903)

# Fetch sessions (KIP-227).
NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
