"""Which quota holds for a client, and with whom it shares a bucket; each level, alone and together."""

import pytest

from barnabas.quotas import clients
from barnabas.quotas.client_quotas import Entity
from barnabas.quotas.clients import BucketKey, ClientMutations, ClientRates, QuotaTable
from barnabas.quotas.rates import Window

# In the order in which they are looked for: `u` and `c` are the client's own, None a default.
LEVELS = [
    Entity("u", "c"),
    Entity("u", None),
    Entity("u"),
    Entity(None, "c"),
    Entity(None, None),
    Entity(None),
    Entity("", "c"),
    Entity("", None),
]
BUCKETS = [("u", "c"), ("u", "c"), ("u", ""), ("u", "c"), ("u", "c"), ("u", ""), ("", "c"), ("", "c")]


def table(**quotas):
    made = QuotaTable()
    for number, quota in quotas.items():
        made.set(LEVELS[int(number[1:])], quota)
    return made


@pytest.mark.parametrize("number", range(8))
def test_each_level_alone(number):
    made = table(**{f"_{number}": 7.0})
    key = made.bucket_of("u", "c")
    assert (key, made.quota_of(key)) == (BUCKETS[number], 7.0)


@pytest.mark.parametrize("first", range(8))
def test_the_first_level_that_exists_holds(first):
    made = table(**{f"_{number}": float(number) for number in range(8)})
    for number in range(first):
        made.set(LEVELS[number], None)
    key = made.bucket_of("u", "c")
    assert (key, made.quota_of(key)) == (BUCKETS[first], float(first))


def test_others_have_buckets_of_their_own_under_a_default():
    made = table(_5=1.0)
    assert made.bucket_of("v", "c") == ("v", "")
    assert made.quota_of(BucketKey("v", "")) == 1.0


def test_who_has_no_quota():
    made = table(_0=1.0)
    assert made.quota_of(made.bucket_of("v", "c")) is None
    assert QuotaTable().quota_of(QuotaTable().bucket_of("u", "c")) is None


def test_a_client_without_an_id_has_no_quota_of_client_ids():
    for made in (table(_7=1.0), table(_4=1.0), table(_4=1.0, _7=1.0)):
        assert made.quota_of(made.bucket_of("u", "")) is None
    both = table(_2=1.0, _7=2.0)
    assert both.quota_of(both.bucket_of("u", "")) == 1.0


def test_a_removed_quota_leaves_its_level_in_use():
    made = table(_6=1.0)
    made.set(Entity("u"), None)  # a SCRAM credential of the user is enough
    made.set(Entity("", "c"), None)
    assert made.quota_of(made.bucket_of("u", "c")) is None
    assert not made.has_quotas
    made = QuotaTable()
    made.set(Entity("u"), None)
    assert made.bucket_of("u", "c") == ("u", "")


def rates(**quotas):
    return ClientRates(table(**quotas), Window())


def test_clients_of_a_user_share_what_the_user_has():
    used = rates(_2=100.0)
    assert used.record("u", "c", 1000, 0) == 0
    assert used.record("u", "d", 100, 0) == 1000
    assert used.record("v", "c", 10**6, 0) == 0


def test_a_changed_quota_acts_on_what_was_used_already():
    made = QuotaTable()
    made.set(Entity("u"), 1000.0)
    used = ClientRates(made, Window())
    assert used.record("u", "c", 2000, 0) == 0
    made.set(Entity("u"), 100.0)
    assert used.record("u", "c", 0, 0) == 10_000


def test_what_was_not_sent_is_taken_back():
    used = rates(_2=100.0)
    used.record("u", "c", 1500, 0)
    used.take_back("u", "c", 1500, 0)
    used.take_back("v", "c", 1500, 0)  # without a bucket
    assert used.record("u", "c", 1000, 0) == 0


def test_time_is_throttled_for_a_window_at_most():
    used = ClientRates(table(_2=1.0), Window(), throttle_max_ms=1000)
    assert used.record("u", "c", 10**6, 0) == 1000


def test_one_response_takes_no_more_than_the_window_holds():
    assert rates(_2=100.0).at_a_time("u", "c") == 1000
    assert rates(_2=100.0).at_a_time("v", "c") is None


def test_buckets_are_bounded_and_dropped_when_idle(monkeypatch):
    monkeypatch.setattr(clients, "BUCKETS_MAX", 10)
    used = rates(_7=1.0)
    for number in range(100):
        used.record("u", f"c{number}", 20, 0)
    assert len(used) == 10
    assert used.record("u", "c99", 0, 0) > 0
    used.record("u", "late", 1, clients.IDLE_MS)
    assert len(used) == 1


def test_mutations_have_a_bucket_for_each_client():
    mutations = ClientMutations(table(_2=1.0), Window())
    bucket = mutations.bucket("u", "c", 0)
    bucket.record(12, 0)
    assert mutations.bucket("u", "d", 0).throttle_ms(0) == 1000
    assert mutations.bucket("v", "c", 0) is None
