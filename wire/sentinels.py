"""Numbers to which Kafka gives a meaning of their own, in requests, responses and files."""

# A partition's leader, and its epoch.
NO_LEADER = -1
LEADER_DURING_DELETE = -2  # of a topic that is being deleted
NO_LEADER_EPOCH = -1
UNKNOWN_BROKER_EPOCH = -1

# Offsets, and those that ListOffsets asks for instead of a time.
NO_OFFSET = -1
LATEST = -1
EARLIEST = -2
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1

# Produce and Fetch.
ACKS_ALL = -1
READ_COMMITTED = 1
FETCH_TOPIC_ID_VERSION = 13  # from here on Fetch names topics by their ids
FETCH_REPLICA_STATE_VERSION = 15  # from here on a follower says its broker epoch

# Fetch sessions (KIP-227).
NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
