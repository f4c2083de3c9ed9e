"""Which ACL a node gets."""

import logging

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


def test_what_kazoo_says_of_its_requests_is_not_logged_whatever_level_is_set():
    """At DEBUG it logs the data of nodes, with the keys of users."""
    from barnabas.config.log_levels import levels
    from barnabas.controller.store.zkclient import kazoo_logger

    assert kazoo_logger.name not in levels()
    assert kazoo_logger.getEffectiveLevel() == logging.ERROR
    assert kazoo_logger.hasHandlers() == logging.getLogger("barnabas.controller.store.zkclient").hasHandlers()
