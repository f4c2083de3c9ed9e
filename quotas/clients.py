"""The quotas of clients, and what each client has used (pure): KIP-13, KIP-55, KIP-124; reference security.md, S.18.

Quotas are set for users, client ids, and client ids of users, each also as a default. A request falls under the first
quota that exists of

    user and client id, user and default client id, user,
    default user and client id, default user and default client id, default user,
    client id, default client id

and under a quota at the level of users all clients of the user share one bucket, under one of client ids all users of
the client id. A default gives each user or client id a bucket of its own. There is one `ClientQuotas` for each rate.
"""

from collections.abc import Callable
from typing import NamedTuple

from barnabas.quotas.buckets import TokenBucket
from barnabas.quotas.client_quotas import Entity
from barnabas.quotas.rates import Rate, Window, throttle_ms

IDLE_MS = 3_600_000  # a bucket that was not used for so long is dropped
BUCKETS_MAX = 50_000  # of one rate: clients choose their ids

# Levels at which any entity was ever changed, as bits.
CLIENT_IDS, USERS, USERS_CLIENT_IDS = 1, 2, 4


class BucketKey(NamedTuple):
    """Who shares a bucket: "" for the user if all users do, and for the client id likewise."""

    user: str
    client_id: str


class QuotaTable:
    """The quotas of one rate."""

    def __init__(self) -> None:
        self._quotas: dict[Entity, float] = {}
        self._levels = 0

    @property
    def has_quotas(self) -> bool:
        """Whether any entity has a quota."""
        return bool(self._quotas)

    def set(self, entity: Entity, quota: float | None) -> None:
        """Set or remove (None) the quota of an entity; what it was before does not matter."""
        # The level counts even if `quota` is None: as in Kafka any change of an entity counts, of whatever
        # rate or credential.
        if entity.user == "":
            self._levels |= CLIENT_IDS
        else:
            self._levels |= USERS if entity.client_id == "" else USERS_CLIENT_IDS
        if quota is None:
            self._quotas.pop(entity, None)
        else:
            self._quotas[entity] = quota

    def bucket_of(self, user: str, client_id: str) -> BucketKey:
        """The bucket of a client; not all have a quota."""
        # While one level alone is used there is nothing to choose.
        if self._levels in (0, CLIENT_IDS):
            return BucketKey("", client_id)
        if self._levels == USERS:
            return BucketKey(user, "")
        if self._levels == USERS_CLIENT_IDS:
            return BucketKey(user, client_id)
        for of_user in (user, None):
            if self._has(of_user, client_id) or self._has(of_user, None):
                return BucketKey(user, client_id)
            if Entity(of_user) in self._quotas:
                return BucketKey(user, "")
        return BucketKey("", client_id)

    def _has(self, user: str | None, client_id: str | None) -> bool:
        # `Entity(user, "")` is a user without a client id, so an empty client id has no quota of its own.
        return client_id != "" and Entity(user, client_id) in self._quotas

    def quota_of(self, key: BucketKey) -> float | None:
        """The quota of a bucket; None if it has none."""
        if key.user and key.client_id:
            wanted = [Entity(user, client_id) for user in (key.user, None) for client_id in (key.client_id, None)]
        elif key.user:
            wanted = [Entity(key.user), Entity(None)]
        elif key.client_id:
            wanted = [Entity("", key.client_id), Entity("", None)]
        else:
            return None
        return next((self._quotas[entity] for entity in wanted if entity in self._quotas), None)


class _Used(NamedTuple):
    rate: Rate
    used_at_ms: int


class ClientRates:
    """One rate of all clients: bytes produced or fetched, or time used, per second."""

    def __init__(self, table: QuotaTable, window: Window, *, throttle_max_ms: int | None = None) -> None:
        self._table = table
        self._window = window
        self._throttle_max_ms = throttle_max_ms

        # The least recently used bucket first.
        self._buckets: dict[BucketKey, _Used] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Record what a client used; how long it is throttled for that."""
        key = self._table.bucket_of(user, client_id)
        quota = self._table.quota_of(key)

        # Kafka measures clients without a quota, too, but nothing reads their rates.
        if quota is None:
            return 0
        rate = self._rate(key, now_ms)
        rate.record(value, now_ms)
        throttled_ms = throttle_ms(rate, quota, now_ms)
        return throttled_ms if self._throttle_max_ms is None else min(throttled_ms, self._throttle_max_ms)

    def take_back(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Undo a `record` whose response was not sent."""
        used = self._buckets.get(self._table.bucket_of(user, client_id))
        if used is not None:
            used.rate.record(-value, now_ms)

    def at_a_time(self, user: str, client_id: str) -> float | None:
        """What one response may take so that the window can hold it; None without a quota."""
        quota = self._table.quota_of(self._table.bucket_of(user, client_id))
        return None if quota is None else quota * (self._window.samples - 1) * self._window.sample_ms / 1000

    def _rate(self, key: BucketKey, now_ms: int) -> Rate:
        used = self._buckets.pop(key, None)
        rate = Rate(self._window) if used is None else used.rate
        self._buckets[key] = _Used(rate, now_ms)
        while True:
            oldest = next(iter(self._buckets))
            if len(self._buckets) <= BUCKETS_MAX and now_ms - self._buckets[oldest].used_at_ms < IDLE_MS:
                return rate
            del self._buckets[oldest]


class ClientMutations:
    """`controller_mutation_rate`: partitions created and deleted per second (KIP-599)."""

    def __init__(self, table: QuotaTable, window: Window) -> None:
        self._table = table
        self._window = window
        self._buckets: dict[BucketKey, TokenBucket] = {}

    def bucket(self, user: str, client_id: str, now_ms: int) -> TokenBucket | None:
        """The bucket of a client; None if it has no quota."""
        key = self._table.bucket_of(user, client_id)
        quota = self._table.quota_of(key)
        if quota is None:
            return None
        bucket = self._buckets.pop(key, None)
        if bucket is None:
            bucket = TokenBucket(self._window, quota, now_ms)
        bucket.set_quota(quota)
        self._buckets[key] = bucket
        if len(self._buckets) > BUCKETS_MAX:
            del self._buckets[next(iter(self._buckets))]
        return bucket


class Mutations:
    """What one request may create and delete.

    `strict` requests are refused while tokens are missing. Others, in versions that do not know the error, are only
    throttled.
    """

    def __init__(self, bucket: TokenBucket | None, now_ms: Callable[[], int], *, strict: bool) -> None:
        self._bucket = bucket
        self._now_ms = now_ms
        self._strict = strict
        self._throttled_ms = self._asked_at_ms = 0

    @property
    def is_limited(self) -> bool:
        """Whether the client has a quota."""
        return self._bucket is not None

    def take(self, permits: int) -> bool:
        """Record mutations, right before they are made; False if they must not be made now."""
        if self._bucket is None:
            return True
        self._asked_at_ms = self._now_ms()
        if self._strict:
            self._throttled_ms = self._bucket.throttle_ms(self._asked_at_ms)
            if self._throttled_ms:
                return False
        self._bucket.record(permits, self._asked_at_ms)
        if not self._strict:
            self._throttled_ms = self._bucket.throttle_ms(self._asked_at_ms)
        return True

    @property
    def throttled_ms(self) -> int:
        """How long the client is still throttled for them."""
        if not self._throttled_ms:
            return 0
        return max(0, self._throttled_ms - (self._now_ms() - self._asked_at_ms))
