"""Which ACL a node gets."""

import pytest
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from barnabas.controller.store.zkaccess import PLAIN, DigestLogin, ZooKeeperAccess
from barnabas.controller.store.zkclient import _acl_of

SENSITIVE = ("/config/users", "/config/users/alice", "/config/brokers/1", "/delegation_token/tokens/id")
READABLE = (
    "/brokers/topics/t",
    "/config/topics/t",
    "/kafka-acl/Topic/t",
    "/controller",
    "/delegation_token",
    "/consumers/group",
)


@pytest.mark.parametrize("path", [*SENSITIVE, *READABLE, "/consumers"])
def test_without_set_acl_every_node_is_open(path):
    assert _acl_of(path, PLAIN) == OPEN_ACL_UNSAFE


@pytest.mark.parametrize("path", SENSITIVE)
def test_nodes_with_credentials_are_for_their_creator(path):
    assert _acl_of(path, ZooKeeperAccess(restricts=True)) == CREATOR_ALL_ACL


@pytest.mark.parametrize("path", READABLE)
def test_other_nodes_are_readable(path):
    assert _acl_of(path, ZooKeeperAccess(restricts=True)) == CREATOR_ALL_ACL + READ_ACL_UNSAFE


def test_old_consumers_may_create_nodes():
    assert _acl_of("/consumers", ZooKeeperAccess(restricts=True)) == OPEN_ACL_UNSAFE


def test_a_password_is_not_shown():
    assert "secret" not in repr(ZooKeeperAccess(login=DigestLogin("kafka", "secret")))
