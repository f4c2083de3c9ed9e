"""A laboratory for a module, whose cluster the module makes."""

import pytest

from barnabas.testing import Laboratory
from tests.testing.lab.http import done


@pytest.fixture(scope="module")
def laboratory(cluster):
    with Laboratory(cluster) as laboratory:
        yield laboratory


@pytest.fixture
def lab(laboratory):
    yield laboratory
    done(laboratory, "POST", "/v1/reset")
